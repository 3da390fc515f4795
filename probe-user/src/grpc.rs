//! Messages go through tonic as bytes. Otherwise the program has tonic's code once for each kind of message.
//! Answers are checked for what tonic panics at.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::{Buf as _, BufMut as _, Bytes};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, combinators::MapFrame};
use hyper::body::{Body, Frame};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Base64 as tonic reads it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An answer that tonic can read.
pub(crate) type Checked<B> = Response<MapFrame<B, fn(Frame<Bytes>) -> Frame<Bytes>>>;

/// Leaves out details of a status that are not in base64: tonic 0.14 panics at them.
pub(crate) fn checked<B: Body<Data = Bytes>>(answer: Response<B>) -> Checked<B> {
    let (mut head, body) = answer.into_parts();
    check(&mut head.headers);
    Response::from_parts(head, body.map_frame(check_frame))
}

fn check_frame(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        check(trailers);
    }
    frame
}

fn check(headers: &mut HeaderMap) {
    let mut all = headers.get_all(Status::GRPC_STATUS_DETAILS).iter();
    if all.any(|details| BASE64.decode(details).is_err()) {
        headers.remove(Status::GRPC_STATUS_DETAILS);
    }
}

/// Passes messages on as they are.
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Empty, combinators::WithTrailers};

    use super::{Bytes, HeaderMap, Response, Status, checked};

    type Body =
        WithTrailers<Empty<Bytes>, std::future::Ready<Option<Result<HeaderMap, std::convert::Infallible>>>>;

    /// An answer with these details among its headers and its trailers.
    fn answer(details: &[&'static str]) -> Response<Body> {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", 14.into());
        for details in details {
            headers.append(Status::GRPC_STATUS_DETAILS, details.parse().expect("a value"));
        }
        let trailers = std::future::ready(Some(Ok(headers.clone())));
        let mut answer = Response::new(Empty::new().with_trailers(trailers));
        *answer.headers_mut() = headers;
        answer
    }

    #[tokio::test]
    async fn details_that_tonic_cannot_read_are_left_out_and_others_stay() {
        for (details, stay) in [
            (&[][..], 0),
            (&["!"], 0),
            (&["a"], 0),
            (&["CAg-"], 0),
            (&["CAg="], 1),
            (&["CAg"], 1),
            (&["CAg=", "!"], 0),
        ] {
            let (head, body) = checked(answer(details)).into_parts();
            let trailers = body.collect().await.expect("a body").trailers().cloned().expect("trailers");
            for headers in [head.headers, trailers] {
                assert_eq!(headers.get_all(Status::GRPC_STATUS_DETAILS).iter().count(), stay, "{details:?}");
                assert_eq!(
                    Status::from_header_map(&headers).expect("a status").code(),
                    tonic::Code::Unavailable
                );
            }
        }
    }
}
