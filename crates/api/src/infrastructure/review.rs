//! Answers an API server that asks for conversion.

use kube::core::Status;
use kube::core::conversion::{ConversionRequest, ConversionResponse, ConversionReview};

use super::convert;

/// Answers a review: all objects converted, or a refusal that says which could not be.
pub fn review(review: ConversionReview) -> ConversionReview {
    let request = match ConversionRequest::from_review(review) {
        Ok(request) => request,
        Err(error) => {
            let refusal = Status::failure(&error.to_string(), "BadRequest").with_code(400);
            return ConversionResponse::invalid(refusal).into_review();
        }
    };
    let to = request.desired_api_version.clone();
    let objects = request.objects.clone();
    let response = ConversionResponse::for_request(request);
    let converted: Result<Vec<_>, _> = objects
        .into_iter()
        .map(|object| convert::convert(object, &to))
        .collect();
    match converted {
        Ok(objects) => response.success(objects),
        Err(error) => response.failure(Status::failure(&error.to_string(), "Invalid")),
    }
    .into_review()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(to: &str, object: &serde_json::Value) -> serde_json::Value {
        let asked = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "7", "desiredAPIVersion": to, "objects": [object]},
        });
        let answer = review(serde_json::from_value(asked).unwrap());
        serde_json::to_value(answer.response).unwrap()
    }

    #[test]
    fn objects_come_back_in_the_version_asked_for() {
        let machine = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha2", "kind": "ProxmoxMachine",
            "metadata": {"name": "m"}, "spec": {"numCores": 2},
        });
        let answer = asked("infrastructure.cluster.x-k8s.io/v1beta1", &machine);
        assert_eq!(answer["result"]["status"], "Success");
        assert_eq!(answer["convertedObjects"][0]["spec"], json!({"cores": 2}));
    }

    #[test]
    fn what_cannot_be_converted_is_refused_with_the_reason() {
        let answer = asked(
            "infrastructure.cluster.x-k8s.io/v1beta1",
            &json!({"apiVersion": "v1", "kind": "Pod"}),
        );
        assert_eq!(answer["result"]["status"], "Failure");
        assert!(
            answer["result"]["message"]
                .as_str()
                .unwrap()
                .contains("Pod")
        );
    }
}
