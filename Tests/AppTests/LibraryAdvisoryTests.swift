import Foundation
import Logging
import Synchronization
import Testing

@testable import App

@Suite("Libraries with known holes")
struct LibraryAdvisoryTests {
  @Test("are told by the packages that dpkg has, those that were removed not among them")
  func installed() throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try FileManager.default.createDirectory(
      atPath: folder + "/status.d", withIntermediateDirectories: true)
    try """
    Package: libde265-0
    Status: install ok installed
    Version: 1.0.11-1+deb12u2

    Package: libcurl4
    Status: deinstall ok config-files
    Version: 7.0-1

    Package: libpng16-16
    Status: install ok installed
    Version: 1.6.39-2+deb12u4

    """.write(toFile: folder + "/status", atomically: true, encoding: .utf8)
    try "Package: libwebp7\nVersion: 1.2.4-0.2\n".write(
      toFile: folder + "/status.d/libwebp7", atomically: true, encoding: .utf8)
    let installed = LibraryAdvisories.installed(below: folder)
    #expect(installed.count == 3)
    let open = LibraryAdvisories.open(among: installed)
    #expect(open.map(\.advisory.package) == ["libde265-0", "libwebp7"])
    #expect(open.map(\.version) == ["1.0.11-1+deb12u2", "1.2.4-0.2"])
    let lines = LogText()
    LibraryAdvisories.tell(to: lines.log, installed)
    #expect(lines.all.count == 2 && lines.all.allSatisfy { $0.hasPrefix("error") })
    #expect(lines.all.contains { $0.contains("libwebp7") && $0.contains("CVE-2023-4863") })
    let unknown = LogText()
    LibraryAdvisories.tell(to: unknown.log, LibraryAdvisories.installed(below: folder + "/none"))
    #expect(unknown.all.count == 1 && unknown.all[0].contains("not known here"))
  }

  /// Where Debian's changelogs are, the table is held to them.
  @Test(
    "stand in the changelog of the package that mends them",
    arguments: LibraryAdvisories.all.map(\.package))
  func facts(package: String) async throws {
    let advisory = try #require(LibraryAdvisories.all.first { $0.package == package })
    // An older one's knows nothing of it.
    let script = """
      dpkg --compare-versions "$(dpkg-query -W -f '${Version}' \(package))" ge \(advisory.mended) &&
        zcat /usr/share/doc/\(package)/changelog.Debian.gz || true
      """
    let text = try await Shell.run("(\(script)) 2>/dev/null", in: "/")
    guard !text.isEmpty else { return }
    let holes = advisory.holes.matches(of: #/CVE-\d{4}-\d+/#).map { String($0.0) }
    #expect(!holes.isEmpty)
    // Newest first: whatever stands above is newer than what mends it.
    guard let mended = text.range(of: "(\(advisory.mended))") else {
      Issue.record("\(advisory.mended) is no version of \(package) that its changelog has")
      return
    }
    let since = text[mended.upperBound...]
    for hole in holes {
      // One that names several, as 56209-56210, names it by its number.
      let number = String(hole.split(separator: "-").last ?? "")
      #expect(since.contains(hole) || since.contains("-\(number)"), "\(hole)")
    }
  }

  @Test("are compared as dpkg compares versions")
  func order() async throws {
    var all = [
      "1.0", "1.0-1", "1.0-1+deb12u1", "1.0-1+deb12u2", "1.0-1+deb12u10", "1.0~rc1", "1.0~",
      "1:0.1",
      "1.0.dfsg-1", "1.0a", "1.0+b", "1.00-01", "2.4+20151223.gitfa8646d.1-2+b2", "10.0", "9.9-1",
      "0",
    ]
    var random = SystemRandomNumberGenerator()
    let pieces = ["1", "0", "09", "a", "~", "+", ".", "-", "deb", "12", "u"]
    for _ in 0..<14 {
      let text = (0..<6).map { _ in pieces.randomElement(using: &random) ?? "" }.joined()
      all.append("1" + text + "1")
    }
    var script = ""
    for a in all {
      for b in all {
        script += "dpkg --compare-versions '\(a)' lt '\(b)' 2>/dev/null; printf $?\n"
      }
    }
    guard FileManager.default.isExecutableFile(atPath: "/usr/bin/dpkg") else { return }
    let told = try await Shell.run(script, in: "/").map { $0 == "0" }
    var at = 0
    for a in all {
      for b in all {
        #expect((DebianVersion(a) < DebianVersion(b)) == told[at], "\(a) \(b)")
        at += 1
      }
    }
  }

  @Test("are of packages that the executable is linked with")
  func linked() async throws {
    let libraries = try await Shell.run("ldd '\(RunningService.executable)'", in: "/")
    for advisory in LibraryAdvisories.all {
      // libjxl0.7 is libjxl.so.0.7, libpng16-16 libpng16.so.16, zlib1g libz.so.1.
      let stem = advisory.package == "zlib1g" ? "libz" : advisory.package
      let name = stem.prefix(while: { $0.isLetter }) + (stem.hasPrefix("libde265") ? "265" : "")
      #expect(libraries.contains(name), "\(advisory.package)")
    }
  }
}

/// What is logged, a line each: its level, its message and its fields.
private final class LogText: Sendable {
  private let lines = Mutex<[String]>([])
  var all: [String] { lines.withLock(\.self) }

  var log: Logger { Logger(label: "test") { _ in Handler(text: self) } }

  private struct Handler: LogHandler {
    let text: LogText
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.info

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      text.lines.withLock { $0.append("\(event.level) \(event.message) \(event.metadata ?? [:])") }
    }
  }
}
