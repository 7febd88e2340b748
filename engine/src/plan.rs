//! Turns a manifest, its pack and the command line into one resolved `RunPlan`.
//! It refuses to know how any of it is carried out.
