import Foundation
import TestSupport

/// A small server in Python for features that the scripted origin lacks: TLS and a tunnelling proxy. It ends
/// when its owner is released.
///
/// The script prints its port on a separate line once it listens. Later lines are messages for the test.
final class PythonServer: Sendable {
  private let child: ChildProcess
  private let log = NSTemporaryDirectory() + "fetch-server-\(UUID().uuidString)"
  let port: Int

  init(_ script: String, arguments: [String] = []) async throws {
    _ = FileManager.default.createFile(atPath: log, contents: nil)
    guard let file = FileHandle(forWritingAtPath: log) else { throw CocoaError(.fileNoSuchFile) }
    child = try ChildProcess(
      ["/usr/bin/python3", "-u", "-c", watchdog + script] + arguments,
      output: .descriptor(file.fileDescriptor), errors: .null, endsWithOwner: true)
    var port: Int?
    await poll { [log] in
      port = Self.lines(of: log).first.flatMap { Int($0) }
      return port != nil
    }
    guard let port else { throw CocoaError(.executableLoad) }
    self.port = port
  }

  deinit { try? FileManager.default.removeItem(atPath: log) }

  /// The lines printed after the port.
  var printed: [String] { Array(Self.lines(of: log).dropFirst()) }

  /// Returns the complete lines of a file.
  private static func lines(of file: String) -> [String] {
    let text = (try? String(contentsOfFile: file, encoding: .utf8)) ?? ""
    return text.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
      .map(String.init)
  }
}

/// Ends a server that outlives the test process, such as one that all tests share.
private let watchdog = """
  import os, threading, time
  def watch(parent):
      while os.getppid() == parent: time.sleep(0.2)
      os._exit(0)
  threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()

  """

/// A test certificate authority, and a certificate issued by it for 127.0.0.1 and localhost.
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
    let ended = try ChildProcess.run(
      ["/bin/sh", "-c", "exec openssl \(arguments)"], in: folder, errors: .null)
    guard ended.status == 0 else { throw CocoaError(.executableLoad) }
  }
}
