/// Why the server could not be started.
public enum ServerError: Error, Sendable, Equatable {
  /// The host is neither an address nor a name that resolves to one.
  case unknownHost(String)
  /// The address cannot be listened on; `errno` says why.
  case addressUnavailable(host: String, port: Int, errno: Int32)
  /// The certificate or its key is not usable PEM.
  case invalidCertificate(detail: String)
  /// The system refused threads, memory or descriptors.
  case resourcesExhausted(detail: String)
  /// Another libmicrohttpd is installed than those whose inside is known.
  case unknownLibrary(version: String, known: [String])
  /// It was started before.
  case alreadyStarted
}
