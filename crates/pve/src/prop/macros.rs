//! Makes structs of property strings.

/// Declares a property string: the item whose key may be left out first, `required` or `optional`, then the others.
macro_rules! property_string {
    (
        $(#[$doc:meta])* $name:ident {
            required $(#[$hdoc:meta])* $head:ident: $htype:ty = $hkey:literal $(| $halias:literal)*;
            $($(#[$fdoc:meta])* $field:ident: $type:ty = $key:literal $(| $alias:literal)*;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $(#[$hdoc])*
            pub $head: $htype,
            $($(#[$fdoc])* pub $field: Option<$type>,)*
            /// Sub-keys this crate does not know.
            pub other: $crate::prop::Other,
        }

        impl $name {
            /// A value with nothing but what it must have.
            pub fn new($head: $htype) -> Self {
                Self { $head, $($field: None,)* other: $crate::prop::Other::default() }
            }

            pub(crate) fn from_items<'a>(
                items: impl IntoIterator<Item = (Option<&'a str>, &'a str)>,
            ) -> Result<Self, $crate::prop::Error> {
                let mut reader = $crate::prop::value::Reader::new(Some($hkey), items)?;
                let head = reader.take(&[$hkey $(, $halias)*])?.ok_or($crate::prop::Error::Missing($hkey))?;
                Ok(Self {
                    $head: head,
                    $($field: reader.take(&[$key $(, $alias)*])?,)*
                    other: reader.rest()?,
                })
            }

            pub(crate) fn write(&self, writer: &mut $crate::prop::value::Writer<'_, '_>) -> std::fmt::Result {
                $(writer.put($key, self.$field.as_ref())?;)*
                writer.rest(&self.other)
            }
        }

        property_string!(@text $name);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut writer = $crate::prop::value::Writer::new(f);
                writer.head($hkey, Some(&self.$head))?;
                self.write(&mut writer)
            }
        }
    };
    (
        $(#[$doc:meta])* $name:ident {
            optional $(#[$hdoc:meta])* $head:ident: $htype:ty = $hkey:literal $(| $halias:literal)*;
            $($(#[$fdoc:meta])* $field:ident: $type:ty = $key:literal $(| $alias:literal)*;)*
        }
    ) => {
        property_string!(@fields $(#[$doc])* $name, (Some($hkey)) {
            $(#[$hdoc])* $head: $htype = $hkey $(| $halias)*;
            $($(#[$fdoc])* $field: $type = $key $(| $alias)*;)*
        });

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut writer = $crate::prop::value::Writer::new(f);
                writer.head($hkey, self.$head.as_ref())?;
                $(writer.put($key, self.$field.as_ref())?;)*
                writer.rest(&self.other)
            }
        }
    };
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$fdoc:meta])* $field:ident: $type:ty = $key:literal $(| $alias:literal)*;)*
        }
    ) => {
        property_string!(@fields $(#[$doc])* $name, (None::<&str>) {
            $($(#[$fdoc])* $field: $type = $key $(| $alias)*;)*
        });

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut writer = $crate::prop::value::Writer::new(f);
                $(writer.put($key, self.$field.as_ref())?;)*
                writer.rest(&self.other)
            }
        }
    };
    (
        @fields $(#[$doc:meta])* $name:ident, ($default:expr) {
            $($(#[$fdoc:meta])* $field:ident: $type:ty = $key:literal $(| $alias:literal)*;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: Option<$type>,)*
            /// Sub-keys this crate does not know.
            pub other: $crate::prop::Other,
        }

        impl $name {
            fn from_items<'a>(
                items: impl IntoIterator<Item = (Option<&'a str>, &'a str)>,
            ) -> Result<Self, $crate::prop::Error> {
                let mut reader = $crate::prop::value::Reader::new($default, items)?;
                Ok(Self { $($field: reader.take(&[$key $(, $alias)*])?,)* other: reader.rest()? })
            }
        }

        property_string!(@text $name);
    };
    (@text $name:ident) => {
        impl std::str::FromStr for $name {
            type Err = $crate::prop::Error;

            fn from_str(text: &str) -> Result<Self, $crate::prop::Error> {
                Self::from_items($crate::prop::items(text)?)
            }
        }
    };
}
