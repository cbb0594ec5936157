/// Named images below one root that the operator configured.
public protocol LocalImages: Sendable {
  /// The image's bytes.
  ///
  /// - Parameter name: a relative path, `/` between its parts; the edge has refused `..`, absolute names and NUL.
  func open(_ name: String) async throws(LocalImageError) -> StoredBytes
}

/// Why a named image can't be had.
public enum LocalImageError: Error, Sendable, Equatable {
  /// There is none of that name.
  case notFound
  /// The name leads out of the root, by a symbolic link or otherwise.
  case outside
  /// It is a folder, a device, a FIFO or a socket.
  case notAFile
  /// Anything else; `detail` is for the log.
  case unavailable(detail: String)
}
