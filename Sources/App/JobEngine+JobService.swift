internal import API
package import Engine

/// The engine serves the API's requests.
extension JobEngine: JobService {}
