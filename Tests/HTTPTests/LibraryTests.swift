import Logging
import Synchronization
import Testing

@testable import HTTP

@Suite("The libmicrohttpd version")
struct LibraryTests {
  @Test("the linked version was tested, so the server starts without a warning")
  func linked() throws {
    let lines = Lines()
    let server = HTTPServer(
      configuration, handler: { _ in .text("") }, refusal: { _, _ in .text("") }, log: lines.logger)
    _ = try server.start()
    #expect(lines.warnings == [])
  }

  @Test(
    "a tested version is accepted without a warning",
    arguments: MicroHTTPDLibrary.tested + ["1.0.1-4"])
  func tested(version: String) throws {
    let lines = Lines()
    try MicroHTTPDLibrary.check(version, log: lines.logger)
    #expect(lines.warnings == [])
  }

  @Test(
    "an untested version is accepted with one warning that names the tested versions",
    arguments: [
      "0.9.76", "0.9.755", "0.9.75.1", "1.0", "1.0.99", "1.1.0", "2.0.0", "99999999999999999999",
    ])
  func untested(version: String) throws {
    let lines = Lines()
    try MicroHTTPDLibrary.check(version, log: lines.logger)
    #expect(
      lines.warnings == [
        "this version of libmicrohttpd was not tested version=\(version) "
          + "tested=\(MicroHTTPDLibrary.tested.joined(separator: ", "))"
      ])
  }

  @Test("a version older than 0.9.75 is refused", arguments: ["", "0.9.74", "0.9.7", "0.9", "0"])
  func old(version: String) throws {
    #expect(throws: ServerError.libraryTooOld(version: version, oldest: "0.9.75")) {
      try MicroHTTPDLibrary.check(version, log: Lines().logger)
    }
  }

  @Test(
    "versions from 1.0 on are strict",
    arguments: [
      ("0.9.75", false), ("0.9.77", false), ("1.0.0", true), ("1.0.10", true), ("2.0.0", true),
    ])
  func strict(version: String, isStrict: Bool) {
    #expect(MicroHTTPDLibrary.isStrict(version) == isStrict)
  }

  private var configuration: HTTPServer.Configuration {
    var configuration = HTTPServer.Configuration()
    (configuration.port, configuration.threads) = (0, 1)
    return configuration
  }
}

/// Collects the warnings of a logger.
private final class Lines: Sendable {
  private let all = Mutex<[String]>([])

  var warnings: [String] { all.withLock { $0 } }
  var logger: Logger { Logger(label: "test") { _ in Handler(lines: self) } }

  private struct Handler: LogHandler {
    let lines: Lines
    var logLevel = Logger.Level.warning
    var metadata = Logger.Metadata()
    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      let fields = ["version", "tested"].compactMap { name in
        event.metadata?[name].map { "\(name)=\($0)" }
      }
      lines.all.withLock {
        $0.append(([event.message.description] + fields).joined(separator: " "))
      }
    }
  }
}
