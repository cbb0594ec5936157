/// Why a fetcher could not be made.
public enum FetcherSetupError: Error, Sendable, Equatable {
  /// libcurl did not start.
  case curlUnavailable
  /// The process has no descriptor left.
  case noDescriptor(errno: Int32)
  /// Not `http://` or `https://` with a host.
  case unusableProxy
  /// The file of certificate authorities can't be read.
  case unreadableCertificates(path: String)
}
