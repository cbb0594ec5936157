import Foundation

/// A small server in Python, for what a plain socket can't do: TLS and a tunnelling proxy. Ends with its owner.
///
/// The script prints its port on a line of its own once it listens, and what it wants to tell afterwards.
final class PythonServer: @unchecked Sendable {  // set up in `init`, then only read
  private let process = Process()
  private let log = NSTemporaryDirectory() + "fetch-server-\(UUID().uuidString)"
  let port: Int

  init(_ script: String, arguments: [String] = []) throws {
    // A file, since a pipe's end would be inherited by whatever process another test starts.
    _ = FileManager.default.createFile(atPath: log, contents: nil)
    process.executableURL = URL(fileURLWithPath: "/usr/bin/python3")
    process.arguments = ["-u", "-c", script] + arguments
    process.standardOutput = FileHandle(forWritingAtPath: log)
    process.standardError = FileHandle.nullDevice
    try process.run()
    let deadline = ContinuousClock.now + .seconds(20)
    while true {
      let text = try String(contentsOfFile: log, encoding: .utf8)
      if let line = text.split(separator: "\n").first, text.contains("\n"), let port = Int(line) {
        self.port = port
        return
      }
      guard ContinuousClock.now < deadline else { throw CocoaError(.executableLoad) }
      usleep(2_000)
    }
  }

  deinit {
    process.terminate()
    try? FileManager.default.removeItem(atPath: log)
  }

  /// What it has printed since it listens, line by line.
  var printed: [String] {
    let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
    return text.split(separator: "\n").dropFirst().map(String.init)
  }
}

/// A certificate authority of the test's own and a certificate by it for 127.0.0.1 and localhost.
final class TestCertificates: Sendable {
  let folder: String
  var authority: String { "\(folder)/ca.pem" }
  var certificate: String { "\(folder)/server.pem" }

  init() throws {
    folder = NSTemporaryDirectory() + "fetch-tls-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try run(
      "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=Test "
        + "-keyout ca.key -out ca.pem")
    try run(
      "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost "
        + "-keyout server.key -out server.csr")
    let names = "subjectAltName=DNS:localhost,DNS:secure.test,IP:127.0.0.1\n"
    try names.write(toFile: "\(folder)/names", atomically: true, encoding: .utf8)
    try run(
      "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
        + "-extfile names -out server.crt")
    let parts = try ["server.crt", "server.key"].map {
      try String(contentsOfFile: "\(folder)/\($0)", encoding: .utf8)
    }
    try parts.joined().write(toFile: certificate, atomically: true, encoding: .utf8)
  }

  deinit { try? FileManager.default.removeItem(atPath: folder) }

  private func run(_ arguments: String) throws {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
    process.currentDirectoryURL = URL(fileURLWithPath: folder)
    process.arguments = arguments.split(separator: " ").map(String.init)
    process.standardError = FileHandle.nullDevice
    try process.run()
    process.waitUntilExit()
    guard process.terminationStatus == 0 else { throw CocoaError(.executableLoad) }
  }
}
