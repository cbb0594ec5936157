public import API
public import Engine

/// The engine is what the API asks.
extension JobEngine: JobService {}
