internal import Foundation
internal import Glibc
internal import Synchronization

/// A PostgreSQL server for tests, in a temporary folder, on a free loopback port, without a password. It ends with the
/// process.
///
/// If the tests run as root, it runs as the user of Debian's package, because PostgreSQL refuses to run as root.
package final class PostgresServer: Sendable {
  /// Why the server could not be started.
  package struct Failure: Error, CustomStringConvertible {
    package let description: String
  }

  /// The port that it listens on.
  package let port: Int
  private let folder: String
  private let isDurable: Bool
  private let hasUpkeep: Bool
  private let disk: SmallDisk?
  private let running = Mutex<Running?>(nil)

  private final class Running: Sendable {
    let process = Mutex<ChildProcess?>(nil)
    var identifier: pid_t { process.withLock { $0?.id ?? 0 } }
  }

  /// The user that needs a password, if it exists.
  package static let secured = "secured"

  private static let one = Result { try PostgresServer() }

  /// The server that many tests share. Each test has its own database. Its data may be lost if the machine crashes.
  package static var shared: PostgresServer { get throws { try one.get() } }

  /// Creates a server and starts it.
  /// - Parameters:
  ///   - isDurable: whether committed data is synced.
  ///   - primary: the server whose synchronous standby this is; nil for none.
  ///   - hasUpkeep: whether autovacuum runs.
  ///   - small: the part on a small disk that can be filled (``SmallDisk/isPossible``); nil for none.
  package init(
    isDurable: Bool = false, standbyOf primary: PostgresServer? = nil, hasUpkeep: Bool = true,
    onSmallDisk small: SmallDisk.Content? = nil
  ) throws {
    self.isDurable = isDurable
    self.hasUpkeep = hasUpkeep
    port = try Self.freePort()
    // In memory if possible. The server's user must be able to reach the folder, which may not be true for a home folder.
    let base =
      ["/dev/shm", "/tmp"].first {
        FileManager.default.isWritableFile(atPath: $0)
      } ?? NSTemporaryDirectory()
    var template = Array("\(base)/imagefetch-postgres-XXXXXX".utf8CString)
    guard let made = mkdtemp(&template) else {
      throw Failure(description: "\(base): \(String(cString: strerror(errno)))")
    }
    folder = String(cString: made)
    disk = try small.map { try SmallDisk(at: SmallDisk.place(in: String(cString: made)), for: $0) }
    data = small == .tables ? SmallDisk.place(in: folder) + "/data" : folder + "/data"
    if getuid() == 0 { try Self.run(["chown", "-R", "postgres:", folder]) }
    if let primary {
      try Self.run(
        user + [
          Self.program("pg_basebackup"), "-h", "127.0.0.1", "-p", "\(primary.port)", "-U",
          "imagefetch", "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync",
        ])
    } else {
      try Self.run(
        user + [
          Self.program("initdb"), "-D", data, "-U", "imagefetch", "-A", "trust", "-E", "UTF8",
          "--locale=C", "--no-sync",
        ]
          + (small.map {
            ["--waldir", ($0 == .log ? SmallDisk.place(in: folder) : folder) + "/log-files"]
          } ?? []))
      let rules = data + "/pg_hba.conf"
      let all = try String(contentsOfFile: rules, encoding: .utf8)
      try "host all \(Self.secured) 127.0.0.1/32 scram-sha-256\n\(all)".write(
        toFile: rules, atomically: false, encoding: .utf8)
    }
    let kept = folder
    Self.folders.withLock { $0.append(kept) }
    Self.removeAtExit
    try start()
    try primary?.waitForStandby()
  }

  /// Makes commits wait for the standby from now on.
  private func waitForStandby() throws {
    try run("ALTER SYSTEM SET synchronous_standby_names = '*'")
    try run("SELECT pg_reload_conf()")
    let deadline = ContinuousClock.now + patience
    while ContinuousClock.now < deadline {
      if try run("SELECT sync_state FROM pg_stat_replication").contains("sync\n") { return }
      usleep(20_000)
    }
    throw Failure(description: "the standby does not follow")
  }

  /// Promotes a standby, so that it accepts writes.
  package func promote() throws { try run("SELECT pg_promote()") }

  deinit {
    crash()
    disk?.unmount()
  }

  private let data: String

  /// Fills its disk, or frees the space again.
  package func fillDisk(_ isFull: Bool) throws {
    if isFull { try disk?.fill() } else { disk?.empty() }
  }

  /// The user and the parent of the server. The server ends when its parent ends, in whatever way.
  private var user: [String] {
    let signal = ["setpriv", "--pdeathsig", "QUIT"]
    guard getuid() == 0 else { return signal }
    return signal + ["--reuid=postgres", "--regid=postgres", "--init-groups"]
  }

  /// The URL of a database, in libpq's format.
  /// - Parameter port: the port of a proxy before the server; nil for the server's port.
  package func url(of database: String, at port: Int? = nil) -> String {
    "postgresql://imagefetch@127.0.0.1:\(port ?? self.port)/\(database)"
  }

  /// Runs a statement in the default database.
  /// - Returns: The rows, one per line.
  @discardableResult
  package func run(_ statement: String, in database: String = "postgres") throws -> String {
    try Self.run([
      "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", url(of: database), "-c",
      statement,
    ])
  }

  /// Starts the server and waits until it accepts connections.
  package func start() throws {
    let log = folder + "/log"
    _ = FileManager.default.createFile(atPath: log, contents: nil)
    let arguments =
      user + [
        Self.program("postgres"), "-D", data, "-p", "\(port)", "-k", folder, "-c",
        "listen_addresses=127.0.0.1", "-c", "max_connections=300", "-c", "shared_buffers=64MB",
        "-c", "fsync=\(isDurable ? "on" : "off")", "-c", "autovacuum_naptime=1s",
        "-c", "autovacuum=\(hasUpkeep ? "on" : "off")",
      ]
    let started = Running()
    // The thread that starts the server must live as long as the server, because the kernel treats its end as the parent's end.
    Thread.detachNewThread {
      guard let file = FileHandle(forWritingAtPath: log),
        let process = try? ChildProcess(
          arguments, in: "/", input: .null, output: .descriptor(file.fileDescriptor),
          errors: .descriptor(file.fileDescriptor))
      else { return }
      started.process.withLock { $0 = process }
      process.wait()
      while true { sleep(1_000) }
    }
    running.withLock { $0 = started }
    let deadline = ContinuousClock.now + patience
    while ContinuousClock.now < deadline {
      if (try? run("SELECT 1")) != nil { return }
      usleep(20_000)
    }
    let said = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
    throw Failure(description: "the server does not start: \(said.suffix(500))")
  }

  /// Kills the server like a crash: nothing more is written, and every connection breaks.
  package func crash() {
    guard let running = running.withLock({ $0 }), running.identifier > 0 else { return }
    let process = running.process.withLock { $0 }
    process?.signal(SIGQUIT)
    process?.wait()
    self.running.withLock { $0 = nil }
  }

  /// Stops all of its processes: connections stay open, but nothing responds.
  package func pause() { signal(SIGSTOP) }

  /// Resumes its processes.
  package func resume() { signal(SIGCONT) }

  private func signal(_ number: Int32) {
    guard let parent = running.withLock({ $0?.identifier }), parent > 0 else { return }
    let path = "/proc/\(parent)/task/\(parent)/children"
    let children = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
    kill(parent, number)
    for child in children.split(separator: " ").compactMap({ pid_t($0) }) { kill(child, number) }
  }
}

/// A database for one test. It is dropped when this object is deallocated.
package final class TestDatabase: Sendable {
  /// The URL in libpq's format.
  package let url: String
  /// The server of the database.
  package let server: PostgresServer
  /// The name of the database.
  package let name: String

  /// Creates an empty database.
  package init(in server: PostgresServer) throws {
    self.server = server
    name = "t" + String(UInt64.random(in: .min ... .max), radix: 36)
    url = server.url(of: name)
    try server.run("CREATE DATABASE \(name) TEMPLATE template0 STRATEGY file_copy")
  }

  deinit { _ = try? server.run("DROP DATABASE IF EXISTS \(name) WITH (FORCE)") }
}

extension PostgresServer {
  private static let folders = Mutex<[String]>([])

  /// The servers end with the thread that started them. Their folders, usually in memory, must be removed.
  private static let removeAtExit: Void = {
    atexit {
      for folder in PostgresServer.folders.withLock({ $0 }) {
        let file =
          (try? String(contentsOfFile: folder + "/data/postmaster.pid", encoding: .utf8))
          ?? (try? String(
            contentsOfFile: SmallDisk.place(in: folder) + "/data/postmaster.pid", encoding: .utf8))
          ?? ""
        if let line = file.split(separator: "\n").first, let server = pid_t(line) {
          kill(server, SIGQUIT)
          for _ in 0..<100 where kill(server, 0) == 0 { usleep(20_000) }
        }
        umount2(SmallDisk.place(in: folder), Int32(MNT_DETACH))
        try? FileManager.default.removeItem(atPath: folder)
      }
    }
  }()

  /// A port that is free at this moment.
  package static func freePort() throws -> Int {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(descriptor) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = in_addr_t(INADDR_LOOPBACK).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isBound = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, size) == 0 && getsockname(descriptor, $0, &size) == 0
      }
    }
    guard isBound else { throw Failure(description: "no port is free") }
    return Int(UInt16(bigEndian: address.sin_port))
  }

  /// The newest installed server. Debian installs its programs outside `PATH`.
  private static func program(_ name: String) -> String {
    let versions =
      (try? FileManager.default.contentsOfDirectory(atPath: "/usr/lib/postgresql")) ?? []
    let newest = versions.compactMap { Int($0) }.max()
    return newest.map { "/usr/lib/postgresql/\($0)/bin/\(name)" } ?? name
  }

  @discardableResult
  private static func run(_ arguments: [String]) throws -> String {
    let errors = Pipe()
    let ended = try ChildProcess.run(arguments, in: "/", input: Data(), errors: .pipe(errors))
    guard ended.status == 0 else {
      let complaint = errors.fileHandleForReading.readDataToEndOfFile()
      let text = String(decoding: complaint, as: UTF8.self)
      throw Failure(description: "\(arguments[0]): \(text.suffix(500))")
    }
    return ended.text
  }
}
