//! What is deployed, as helm and kustomize render it for others: each object by its type, and what is promised of it.

mod chart;
mod object;
mod operator;
mod overlay;
mod pod;
mod render;
mod secret;
mod values;
