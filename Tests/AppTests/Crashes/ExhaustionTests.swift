import Foundation
import TestSupport
import Testing

@Suite("A service that runs out of descriptors or threads", .timeLimit(.minutes(5)))
struct ExhaustionTests {
  /// Starts it where the system gives it so little.
  private static func limited(_ limits: String, in folder: String) throws -> String {
    let path = folder + "/limited"
    let script = "#!/bin/sh\n\(limits)\nexec '\(RunningService.executable)' \"$@\"\n"
    try script.write(toFile: path, atomically: true, encoding: .utf8)
    try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path)
    return path
  }

  @Test("keeps descriptors for jobs, however many connections come, and says so")
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
    // Each has asked for something, so that none is closed for one that has.
    let port = try #require(Int(service.base.split(separator: ":").last!))
    var crowd: [RawConnection] = []
    for _ in 0..<300 {
      let connection = try RawConnection(port)
      connection.send("GET /jobs/\(ids[0]) HTTP/1.1\r\nHost: x\r\n")
      crowd.append(connection)
    }
    // All of theirs, beside what an idle service has.
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
    // As it would be for want of a descriptor.
    #expect(!service.log.contains("connect_failure") && !service.log.contains("storage_full"))
    #expect(try await service.stop() == 0)
  }

  @Test("takes jobs while no thread or process can be had, loses none, and goes on once they can")
  func threads() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let user = try LimitedUser(of: folder)
    // Tried again for long enough that all of them have their turn once processes can be had.
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
    // Those that there are would do.
    for decoder in Self.children(of: forker) { kill(decoder, SIGKILL) }
    let refused = try await service.post(["url": origin.url("/0"), "max_attempts": 1])
    let failed = try await service.outcome(refused)
    #expect(failed.error?.code == "internal", "\(failed.summary)")
    let waiting = try await service.post(batch: (1..<16).map { ["url": origin.url("/\($0)")] })
    // Its name is looked up all the same, though no thread can be started for it.
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

  @Test("ends at its start, and says why, where it can't have its threads", arguments: [1, 6, 12])
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

  /// The process that decoders are forked from.
  private static func forker(of service: RunningService) async throws -> Int32 {
    var found: Int32?
    try await eventually {
      found = children(of: service.processIdentifier).first
      // It has forked one, which the service tries at its start.
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

/// Whom a limit of processes holds for: root goes beyond it, so that then it is another user.
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

  /// A script that starts the service.
  func program(in folder: String, _ before: String = ":") throws -> String {
    let path = folder + "/limited"
    let script =
      "exec \(prefix)bash -c '\(before); exec \"$@\"' bash '\(RunningService.executable)' \"$@\""
    try "#!/bin/bash\n\(script)\n".write(toFile: path, atomically: true, encoding: .utf8)
    try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path)
    return path
  }

  /// How many processes and threads its user may have for it to begin one more; empty: as many as at first.
  /// - Returns: what went wrong.
  func limit(_ process: Int32, to count: String) async throws -> String {
    let value =
      count.isEmpty ? "$(awk '/Max processes/ { print $4 }' /proc/\(process)/limits)" : count
    return try await Shell.run("\(prefix)prlimit --pid \(process) --nproc=\(value): 2>&1", in: "/")
  }
}
