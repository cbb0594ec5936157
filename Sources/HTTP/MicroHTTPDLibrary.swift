internal import CMicroHTTPD

/// The libmicrohttpd that is linked.
public enum MicroHTTPDLibrary {
  /// Its version, such as `0.9.75`.
  public static var version: String { String(cString: MHD_get_version()) }

  /// The versions whose handling of a request's head was read and is tested: where the pieces of the request line and
  /// of each field lie in its buffer, on which refusing what two readers could frame differently rests.
  public static let known: Set<String> = ["0.9.75"]

  /// Throws unless this version is one of those.
  static func check(_ version: String = version) throws(ServerError) {
    // A distribution's suffix changes nothing inside.
    let release = String(version.prefix { $0.isNumber || $0 == "." })
    guard known.contains(release) else {
      throw .unknownLibrary(version: version, known: known.sorted())
    }
  }
}
