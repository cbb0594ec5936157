internal import CMicroHTTPD
import Logging

/// The libmicrohttpd that the process uses.
package enum MicroHTTPDLibrary {
  package static var version: String { String(cString: MHD_get_version()) }

  /// The releases that the tests passed with, oldest first. The server does not start with an older release.
  static let tested = ["0.9.75", "1.0.0", "1.0.1", "1.0.10"]

  /// Whether the library itself refuses heads whose lines could be split in two ways. Releases before 1.0 do
  /// not: see `BufferCheck`.
  static let isStrict = isStrict(version)

  static func isStrict(_ version: String) -> Bool {
    !numbers(version).lexicographicallyPrecedes([1, 0])
  }

  /// Logs a warning if the version was not tested.
  /// - Throws: `.libraryTooOld` if it is older than the oldest tested release.
  static func check(_ version: String = version, log: Logger) throws(ServerError) {
    let release = numbers(version)
    guard !release.lexicographicallyPrecedes(numbers(tested[0])) else {
      throw .libraryTooOld(version: version, oldest: tested[0])
    }
    guard !tested.contains(where: { numbers($0) == release }) else { return }
    log.warning(
      "this version of libmicrohttpd was not tested",
      metadata: ["version": "\(version)", "tested": "\(tested.joined(separator: ", "))"])
  }

  /// Returns the numbers of a release, without the suffix of a distribution or development version.
  private static func numbers(_ version: String) -> [Int] {
    version.prefix { $0.isNumber || $0 == "." }.split(separator: ".").map { Int($0) ?? .max }
  }
}
