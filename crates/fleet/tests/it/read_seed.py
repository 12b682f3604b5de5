"""Reads a NoCloud image as a guest does, with cloud-init's own code, and prints what it found."""

import io
import json
import os
import sys

import pycdlib
from cloudinit import helpers
from cloudinit.net import network_state
from cloudinit.sources import DataSourceNoCloud

image, work = sys.argv[1:3]
seed = os.path.join(work, "seed", "nocloud")
os.makedirs(seed)
iso = pycdlib.PyCdlib()
iso.open(image)
label = iso.pvd.volume_identifier.decode().strip()
names = {}
for kind in ("rr_path", "joliet_path"):
    names[kind] = []
    for child in iso.list_children(**{kind: "/"}):
        if child.is_dot() or child.is_dotdot():
            continue
        name = child.rock_ridge.name().decode() if kind == "rr_path" else child.file_identifier().decode("utf-16_be")
        names[kind].append(name)
        data = io.BytesIO()
        iso.get_file_from_iso_fp(data, **{kind: "/" + name})
        with open(os.path.join(seed, name), "wb") as out:
            out.write(data.getvalue())

paths = helpers.Paths({"cloud_dir": work, "run_dir": work})
source = DataSourceNoCloud.DataSourceNoCloud({"datasource": {"NoCloud": {"fs_label": None}}}, None, paths)
found = source.get_data()
# Without any, cloud-init finds a card itself and asks for an address there.
config = source.network_config
state = network_state.parse_net_config_data(config) if config else None
print(
    json.dumps(
        {
            "label": label,
            "rock_ridge": sorted(names["rr_path"]),
            "joliet": sorted(names["joliet_path"]),
            "found": found,
            "instance_id": source.get_instance_id(),
            "hostname": source.metadata["local-hostname"],
            "user_data": source.userdata_raw.decode() if isinstance(source.userdata_raw, bytes) else source.userdata_raw,
            "vendor_data": source.vendordata_raw.decode() if isinstance(source.vendordata_raw, bytes) else source.vendordata_raw,
            "interfaces": [
                {
                    "mac": interface["mac_address"],
                    "subnets": interface["subnets"],
                    "mtu": interface.get("mtu"),
                }
                for interface in state.iter_interfaces()
            ]
            if state
            else None,
        }
    )
)
