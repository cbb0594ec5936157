internal import Foundation
internal import Glibc
internal import Synchronization

/// A PostgreSQL server of the tests' own: in a temporary folder, on a free port of loopback, without a password. It ends with
/// the process.
///
/// As root it runs as the user that Debian's package makes, as the server refuses to be root's.
public final class PostgresServer: Sendable {
  /// Why there is none.
  public struct Failure: Error, CustomStringConvertible {
    public let description: String
  }

  /// Where it listens.
  public let port: Int
  private let folder: String
  private let isDurable: Bool
  private let hasUpkeep: Bool
  private let disk: SmallDisk?
  private let running = Mutex<Running?>(nil)

  private final class Running: Sendable {
    let process = Mutex<ChildProcess?>(nil)
    var identifier: pid_t { process.withLock { $0?.id ?? 0 } }
  }

  /// Who needs a password, once there is such a user.
  public static let secured = "secured"

  private static let one = Result { try PostgresServer() }

  /// One that many tests share, each with a database of its own. A crash of the machine may lose what it keeps.
  public static var shared: PostgresServer { get throws { try one.get() } }

  /// Makes a server and starts it.
  /// - Parameters:
  ///   - isDurable: whether what it says is kept is on the disk.
  ///   - primary: whose synchronous standby it is, from when this returns; nil: nobody's.
  ///   - hasUpkeep: whether it vacuums and analyses by itself.
  ///   - small: what is on a disk of its own that can be filled (``SmallDisk/isPossible``); nil: nothing.
  public init(
    isDurable: Bool = false, standbyOf primary: PostgresServer? = nil, hasUpkeep: Bool = true,
    onSmallDisk small: SmallDisk.Content? = nil
  ) throws {
    self.isDurable = isDurable
    self.hasUpkeep = hasUpkeep
    port = try Self.freePort()
    // In memory where that can be had; a folder that the server's user can reach, which a home's may not be.
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

  /// Commits nothing from now on that its standby doesn't have.
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

  /// Has a standby be the one that takes writes.
  public func promote() throws { try run("SELECT pg_promote()") }

  deinit {
    crash()
    disk?.end()
  }

  private let data: String

  /// Leaves its disk no room, or as much as it had before.
  public func fillDisk(_ isFull: Bool) throws {
    if isFull { try disk?.fill() } else { disk?.empty() }
  }

  /// Who the server runs as. What it was started by takes it along when it ends, however that happens.
  private var user: [String] {
    let signal = ["setpriv", "--pdeathsig", "QUIT"]
    guard getuid() == 0 else { return signal }
    return signal + ["--reuid=postgres", "--regid=postgres", "--init-groups"]
  }

  /// Where a database is, as libpq has it.
  /// - Parameter port: of what stands before it; nil: its own.
  public func url(of database: String, at port: Int? = nil) -> String {
    "postgresql://imagefetch@127.0.0.1:\(port ?? self.port)/\(database)"
  }

  /// Runs a statement, in the database that every server has.
  /// - Returns: its rows, a line each.
  @discardableResult
  public func run(_ statement: String, in database: String = "postgres") throws -> String {
    try Self.run([
      "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", url(of: database), "-c",
      statement,
    ])
  }

  /// Has it be there, and waits until it can be asked.
  public func start() throws {
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
    // The thread that starts it has to last as long as the server: the kernel takes its end for the process's.
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

  /// Ends it as a crash does: nothing is written any more, and every connection breaks.
  public func crash() {
    guard let running = running.withLock({ $0 }), running.identifier > 0 else { return }
    let process = running.process.withLock { $0 }
    process?.signal(SIGQUIT)
    process?.wait()
    self.running.withLock { $0 = nil }
  }

  /// Stops all of its processes where they are: connections stay, and nobody answers.
  public func pause() { signal(SIGSTOP) }

  /// Has them go on.
  public func resume() { signal(SIGCONT) }

  private func signal(_ number: Int32) {
    guard let parent = running.withLock({ $0?.identifier }), parent > 0 else { return }
    let path = "/proc/\(parent)/task/\(parent)/children"
    let children = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
    kill(parent, number)
    for child in children.split(separator: " ").compactMap({ pid_t($0) }) { kill(child, number) }
  }
}

/// A database of one test's own, which goes when nobody holds it.
public final class TestDatabase: Sendable {
  /// As libpq has it.
  public let url: String
  /// The server that has it.
  public let server: PostgresServer
  /// Its name there.
  public let name: String

  /// Makes an empty one.
  public init(in server: PostgresServer) throws {
    self.server = server
    name = "t" + String(UInt64.random(in: .min ... .max), radix: 36)
    url = server.url(of: name)
    try server.run("CREATE DATABASE \(name) TEMPLATE template0 STRATEGY file_copy")
  }

  deinit { _ = try? server.run("DROP DATABASE IF EXISTS \(name) WITH (FORCE)") }
}

extension PostgresServer {
  private static let folders = Mutex<[String]>([])

  /// The servers end with the thread that started them; their folders are in memory, as a rule, and have to go.
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

  /// One that nobody listens on at this moment.
  public static func freePort() throws -> Int {
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

  /// Of the newest server that is installed; Debian has its programs where no shell looks.
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
