public import API
public import Engine

/// The engine serves the API's requests.
extension JobEngine: JobService {}
