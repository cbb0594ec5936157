import Foundation
import TestSupport
import Testing

@Suite("A service that runs out of descriptors or threads", .timeLimit(.minutes(15)))
struct ExhaustionTests {
  /// Returns a script that starts the service with limits of the system.
  private static func limited(_ limits: String, in folder: String) throws -> String {
    let path = folder + "/limited"
    let script = "#!/bin/sh\n\(limits)\nexec '\(RunningService.executable)' \"$@\"\n"
    try script.write(toFile: path, atomically: true, encoding: .utf8)
    try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path)
    return path
  }

  @Test("descriptors are reserved for jobs, however many clients connect, and this is logged")
  func descriptors() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try await RunningService(
      folder: folder, settings: environment(["jobs.workers": "4", "fetch.max_per_host": "4"]),
      program: try Self.limited("ulimit -n 192", in: folder))
    for number in 0..<16 {
      origin.on(
        "/\(number)",
        .dripped(Self.picture(number), size: 4_000, every: .milliseconds(100)))
    }
    let ids = try await service.post(batch: (0..<16).map { ["url": origin.url("/\($0)")] })
    // Each client sends a request, so that no connection is evicted for another.
    let port = try #require(Int(service.base.split(separator: ":").last!))
    var crowd: [RawConnection] = []
    for _ in 0..<300 {
      let connection = try RawConnection(port)
      connection.send("GET /jobs/\(ids[0]) HTTP/1.1\r\nHost: x\r\n")
      crowd.append(connection)
    }
    // All of these connections, in addition to the descriptors of an idle service.
    try await eventually { Self.descriptors(of: service) > 48 + 32 }
    await origin.waitForRequests(to: "/15")
    #expect(Self.descriptors(of: service) < 192)
    crowd = []
    for (number, id) in ids.enumerated() {
      let job = try await service.outcome(id)
      #expect(job.phase == "success", "\(job.summary)")
      #expect(try await service.image(of: id) == Self.picture(number))
    }
    #expect(try await service.get("/readyz").status == 200)
    #expect(service.log.contains("fewer connections than configured"))
    // These codes would mean that a descriptor was missing.
    #expect(!service.log.contains("connect_failure") && !service.log.contains("storage_full"))
    #expect(try await service.stop() == 0)
  }

  @Test("jobs are accepted and none is lost while no thread or process can be started")
  func threads() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let user = try LimitedUser(of: folder)
    // The retries last long enough for all jobs once processes can be started again.
    let keys = [
      "jobs.workers": "4", "fetch.max_per_host": "4", "jobs.max_attempts": "10",
      "jobs.retry_backoff.initial": "1s", "jobs.retry_backoff.maximum": "5s",
    ]
    let service = try await RunningService(
      folder: folder, settings: environment(keys), program: try user.program(in: folder))
    for number in 0..<16 { origin.on("/\(number)", .ok(Self.picture(number))) }
    origin.on("/named", .ok(Self.picture(99)))

    let forker = try await Self.forker(of: service)
    for process in [service.processIdentifier, forker] {
      #expect(try await user.limit(process, to: "1") == "")
    }
    // Existing decoder processes would be enough.
    for decoder in Self.children(of: forker) { kill(decoder, SIGKILL) }
    let refused = try await service.post(["url": origin.url("/0"), "max_attempts": 1])
    let failed = try await service.outcome(refused)
    #expect(failed.error?.code == "internal", "\(failed.summary)")
    let waiting = try await service.post(batch: (1..<16).map { ["url": origin.url("/\($0)")] })
    // The name is looked up although no thread can be started for it.
    let named = try await service.post(["url": "http://localhost:\(origin.port)/named"])
    #expect(await origin.waitForRequests(to: "/named"))
    await origin.waitForRequests(to: "/15")
    #expect(try await service.get("/livez").status == 200)
    #expect(try await service.get("/jobs?limit=10").status == 200)
    #expect(service.log.contains("no decoder process can be started"))
    #expect(service.log.contains("raise TasksMax"))

    for process in [service.processIdentifier, forker] {
      #expect(try await user.limit(process, to: "") == "")
    }
    for (number, id) in waiting.enumerated() {
      let job = try await service.outcome(id)
      #expect(job.phase == "success", "\(job.summary)")
      #expect(try await service.image(of: id) == Self.picture(number + 1))
    }
    #expect(try await service.outcome(named).phase == "success")
    try await service.fetchAgain(refused)
    #expect(try await service.outcome(refused).phase == "success")
    #expect(try await service.get("/readyz").status == 200)
    #expect(try await service.stop() == 0)
  }

  @Test("a service that cannot start its threads ends with an error", arguments: [1, 6, 12])
  func start(limit: Int) async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let program = try LimitedUser(of: folder).program(in: folder, "ulimit -u \(limit)")
    let said = try await Shell.run(
      """
      export IMAGEFETCH_SERVER_PORT=0 IMAGEFETCH_STORAGE_PATH='\(folder)/data' SWIFT_BACKTRACE=enable=no
      '\(program)' serve 2>&1; echo "ended with $?"
      """, in: folder)
    #expect(
      said.hasSuffix(
        "imagefetch: internal fault: no thread can be started: \(Self.advice)\nended with 70\n"))
  }

  private static let advice =
    "raise TasksMax or the process limit of the container or user"

  /// Returns the process that forks the decoder processes.
  private static func forker(of service: RunningService) async throws -> Int32 {
    var found: Int32?
    try await eventually {
      found = children(of: service.processIdentifier).first
      // It has forked one decoder process, which the service tests at its start.
      return found.map { !children(of: $0).isEmpty } ?? false
    }
    return try #require(found)
  }

  private static func children(of process: Int32) -> [Int32] {
    let tasks = "/proc/\(process)/task"
    return ((try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []).flatMap { task in
      let text = try? String(contentsOfFile: "\(tasks)/\(task)/children", encoding: .utf8)
      return (text ?? "").split(separator: " ").compactMap { Int32($0) }
    }
  }

  private static func picture(_ number: Int) -> [UInt8] {
    image(
      "\(number)", from: number % 2 == 0 ? Fixtures.filedPNG : Fixtures.smallPNG)
  }

  private static func descriptors(of service: RunningService) -> Int {
    let path = "/proc/\(service.processIdentifier)/fd"
    return (try? FileManager.default.contentsOfDirectory(atPath: path).count) ?? 0
  }
}

/// A user whom a limit of processes applies to. The limit does not apply to root, so root switches to another
/// user.
private struct LimitedUser {
  private let prefix: String

  init(of folder: String) throws {
    guard getuid() == 0 else {
      prefix = ""
      return
    }
    let number: uid_t = 47_000
    try #require(chown(folder, number, number) == 0)
    prefix = "setpriv --reuid \(number) --regid \(number) --clear-groups "
  }

  /// Returns a script that starts the service.
  func program(in folder: String, _ before: String = ":") throws -> String {
    let path = folder + "/limited"
    let script =
      "exec \(prefix)bash -c '\(before); exec \"$@\"' bash '\(RunningService.executable)' \"$@\""
    try "#!/bin/bash\n\(script)\n".write(toFile: path, atomically: true, encoding: .utf8)
    try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path)
    return path
  }

  /// Sets how many processes and threads the user may have when the process starts another one. Empty: the
  /// initial limit.
  /// - Returns: The error message.
  func limit(_ process: Int32, to count: String) async throws -> String {
    let value =
      count.isEmpty ? "$(awk '/Max processes/ { print $4 }' /proc/\(process)/limits)" : count
    return try await Shell.run("\(prefix)prlimit --pid \(process) --nproc=\(value): 2>&1", in: "/")
  }
}
