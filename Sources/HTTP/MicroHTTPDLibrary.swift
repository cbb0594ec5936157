internal import CMicroHTTPD

/// The libmicrohttpd that is linked.
public enum MicroHTTPDLibrary {
  /// Its version, such as `0.9.75`.
  public static var version: String { String(cString: MHD_get_version()) }
}
