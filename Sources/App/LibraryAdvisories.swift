internal import Foundation
internal import Logging
internal import Metrics

/// What is known of holes in the libraries that are linked, as Debian 12's changelogs had it on 22 November 2026.
///
/// A library tells its upstream version alone, which stays the same when Debian mends it: so it is the package's that
/// counts, as dpkg has it on this machine.
enum LibraryAdvisories {
  /// The first version of a package that mends something that matters here.
  struct Advisory: Sendable {
    let package: String
    let mended: String
    /// What is open below it, the worst first.
    let holes: String
  }

  static let date = "2026-11-22"

  /// One a package: the newest.
  static let all = [
    Advisory(
      package: "libde265-0", mended: "1.0.11-1+deb12u3",
      holes: "CVE-2026-33165 (write beyond the heap) and others since CVE-2023-51792"),
    Advisory(
      package: "libjxl0.7", mended: "0.7.0-10+deb12u1",
      holes: "CVE-2024-11403 (write out of bounds), CVE-2024-11498, CVE-2023-35790"),
    Advisory(
      package: "libavif15", mended: "0.11.1-1+deb12u1", holes: "CVE-2025-48174, CVE-2025-48175"),
    Advisory(package: "libdav1d6", mended: "1.0.0-2+deb12u1", holes: "CVE-2024-1580"),
    Advisory(
      package: "libaom3", mended: "3.6.0-1+deb12u3",
      holes: "CVE-2026-56208 (overflow of a buffer), CVE-2026-56209, CVE-2026-56210"),
    Advisory(
      package: "libwebp7", mended: "1.2.4-0.2+deb12u1",
      holes: "CVE-2023-4863 (write beyond the heap)"),
    Advisory(
      package: "libpng16-16", mended: "1.6.39-2+deb12u4",
      holes: "CVE-2026-33416 (use after free), CVE-2026-33636"),
    Advisory(package: "liblcms2-2", mended: "2.14-2+deb12u1", holes: "CVE-2026-41254"),
    Advisory(
      package: "libcurl4", mended: "7.88.1-10+deb12u15",
      holes: "CVE-2025-10148, CVE-2025-14524, CVE-2025-14819, CVE-2026-3783"),
    Advisory(package: "libsqlite3-0", mended: "3.40.1-2+deb12u2", holes: "CVE-2025-6965"),
    Advisory(
      package: "libpq5", mended: "15.18-0+deb12u1", holes: "CVE-2026-6473, CVE-2026-6474"),
    Advisory(package: "libmicrohttpd12", mended: "0.9.75-6", holes: "CVE-2023-27371"),
    Advisory(package: "zlib1g", mended: "1:1.2.11.dfsg-4.1", holes: "CVE-2022-37434"),
  ]

  /// Those that hold for what is installed.
  static func open(among installed: [String: String]) -> [(advisory: Advisory, version: String)] {
    all.compactMap { advisory in
      guard let version = installed[advisory.package],
        DebianVersion(version) < DebianVersion(advisory.mended)
      else { return nil }
      return (advisory, version)
    }
  }

  /// The packages that are installed, with their versions; of a container's image those that its build has put down.
  static func installed(below folder: String = "/var/lib/dpkg") -> [String: String] {
    let parts = folder + "/status.d"
    let names = (try? FileManager.default.contentsOfDirectory(atPath: parts)) ?? []
    var versions: [String: String] = [:]
    for path in [folder + "/status"] + names.map({ parts + "/" + $0 }) {
      guard let text = FileManager.default.contents(atPath: path) else { continue }
      var package = ""
      for line in String(decoding: text, as: UTF8.self).split(separator: "\n") {
        if line.hasPrefix("Package: ") { package = String(line.dropFirst(9)) }
        // What was removed may have left its configuration.
        if line.hasPrefix("Status: "), !line.hasSuffix(" installed") { package = "" }
        if line.hasPrefix("Version: "), !package.isEmpty {
          versions[package] = String(line.dropFirst(9))
        }
      }
    }
    return versions
  }

  /// An operator who reads nothing else has to hear that.
  static func tell(to log: Logger, _ installed: [String: String] = installed()) {
    let open = open(among: installed)
    for advisory in all {
      let isOpen = open.contains { $0.advisory.package == advisory.package }
      guard installed[advisory.package] != nil else { continue }
      Gauge(label: "imagefetch_library_outdated", dimensions: [("package", advisory.package)])
        .record(isOpen ? 1 : 0)
    }
    for (advisory, version) in open {
      log.error(
        "a library has a known hole: update it, and restart",
        metadata: [
          "package": "\(advisory.package)", "version": "\(version)",
          "mended": "\(advisory.mended)", "open": "\(advisory.holes)", "known": "\(date)",
        ])
    }
    if !all.contains(where: { installed[$0.package] != nil }) {
      log.notice("the libraries' packages are not known here: no dpkg says which ones they are")
    }
  }
}
