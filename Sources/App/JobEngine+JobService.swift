public import API
public import Jobs

/// The engine is what the API asks.
extension JobEngine: JobService {}
