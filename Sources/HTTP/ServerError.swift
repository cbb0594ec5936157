/// Why the server could not be started.
package enum ServerError: Error, Sendable, Equatable {
  /// The host is neither an address nor a name that resolves to one.
  case unknownHost(String)
  /// Listening on the address failed with `errno`.
  case addressUnavailable(host: String, port: Int, errno: Int32)
  /// The certificate or its key is not valid PEM.
  case invalidCertificate(detail: String)
  /// The system refused threads, memory or descriptors.
  case resourcesExhausted(detail: String)
  /// The installed libmicrohttpd is older than the oldest supported release.
  case libraryTooOld(version: String, oldest: String)
  /// The server was started before.
  case alreadyStarted
}
