//! The deployed objects as helm and kustomize render them: the type of each object, and its promised
//! properties. Also the files that GitHub reads in this repository.

mod admission;
mod chart;
mod object;
mod operator;
mod overlay;
mod pod;
mod render;
mod secret;
mod values;
mod workflow;
