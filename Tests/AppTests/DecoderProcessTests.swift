import Foundation
import TestSupport
import Testing

@Suite("Decoder processes of a service")
struct DecoderProcessTests {
  private static let canary = "5ca7e0fc0ffee5dad1e5f00dbabe0ddba11ca5cade"

  @Test("decoder processes have no configuration, no environment and only one descriptor")
  func secrets() async throws {
    try await withService(["IMAGEFETCH_VIEW_KEYS": Self.canary]) { service in
      // The process that forks, and one that it forked: the service tests it at its start.
      try await eventually { Self.descendants(of: service.processIdentifier).count >= 2 }
      let decoders = Self.descendants(of: service.processIdentifier)
      #expect(Self.memory(of: service.processIdentifier, holds: Self.canary) != false)
      #expect(try Self.file("/proc/\(service.processIdentifier)/environ") != "")
      for decoder in decoders {
        #expect(Self.memory(of: decoder, holds: Self.canary) != true)
        #expect(try Self.file("/proc/\(decoder)/environ").allSatisfy { $0 == "\0" })
      }
      let last = try #require(decoders.last)
      let descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(last)/fd")
      #expect(descriptors.count == 1)
      let status = try Self.file("/proc/\(last)/status")
      #expect(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"))
    }
  }

  @Test(
    "decoder processes contain codecs, but no code for transfers, databases or responses",
    .disabled(if: Sanitizer.isHere, "its reports need every loaded library"))
  func libraries() async throws {
    try await withService { service in
      try await eventually { Self.descendants(of: service.processIdentifier).count >= 2 }
      let decoder = try #require(Self.descendants(of: service.processIdentifier).last)
      let (maps, own) = (Self.maps(of: service.processIdentifier), Self.maps(of: decoder))
      let (theirs, ours) = try (#require(maps), #require(own))
      for library in ["libc", "libavif", "libdav1d", "libjpeg", "libjxl", "libstdc++", "libwebp"] {
        #expect(ours.contains("/\(library).so"))
      }
      for library in [
        "libcrypto", "libcurl", "libgav1", "libgnutls", "libkrb5", "libldap-2.5", "libmicrohttpd",
        "libnghttp2", "libpq", "libsqlite3", "libssh2", "libssl", "libyaml-0",
      ] {
        #expect(theirs.contains("/\(library).so") && !ours.contains("/\(library).so"), "\(library)")
      }
    }
  }

  @Test("killed decoder processes are replaced, and all end with the service")
  func killed() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for path in ["/0.png", "/1.png", "/2.png"] {
      origin.on(path, .ok(Fixtures.smallPNG, type: "image/png"))
    }
    var decoders: [Int32] = []
    try await withService { service in
      for round in 0..<3 {
        for decoder in Self.descendants(of: service.processIdentifier) { kill(decoder, SIGKILL) }
        let id = try await service.submit(url: origin.url("/\(round).png"))
        #expect(try await service.finished(id)["phase"] as? String == "success")
      }
      decoders = Self.descendants(of: service.processIdentifier)
      #expect(!decoders.isEmpty)
    }
    try await eventually { decoders.allSatisfy { kill($0, 0) != 0 } }
  }

  @Test(
    "no job fails when decoder processes are killed, singly or with the process that forks them",
    arguments: [false, true])
  func lost(atOnce: Bool) async throws {
    let (origin, gate) = (try ScriptedOrigin(), Gate())
    defer { origin.stop() }
    let reply = ScriptedReply.ok(Fixtures.smallPNG, type: "image/png")
    origin.on("/held.png", inOrder: [.held(Fixtures.smallPNG, after: 100, by: gate), reply])
    try await withService { service in
      let id = try await service.submit(url: origin.url("/held.png"))
      try await eventually {
        let progress = try await service.get("/jobs/\(id)").json()["progress"] as? [String: Any]
        return progress?["completed"] as? Int == 100
      }
      // The first one is the process that forks.
      let all = Self.descendants(of: service.processIdentifier)
      let decoders = all.dropFirst()
      for process in atOnce ? all.prefix(1) : decoders { kill(process, SIGKILL) }
      try await eventually { decoders.allSatisfy { Self.hasEnded($0) } }
      gate.open()
      #expect(try await service.finished(id)["phase"] as? String == "success")
      #expect(origin.requests(to: "/held.png").count == 2)
    }
  }

  /// Makes the service inherit orphaned processes, like the first process of a container.
  private static let heir = """
    #!/usr/bin/env python3
    import ctypes, os, sys
    PR_SET_CHILD_SUBREAPER = 36
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    os.execv("\(RunningService.executable)", ["imagefetch"] + sys.argv[1:])
    """

  @Test("no process is left to a container's first process when the forking one is killed")
  func orphans() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/0.png", .ok(Fixtures.smallPNG, type: "image/png"))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let program = folder + "/heir"
    try Self.heir.write(toFile: program, atomically: true, encoding: .utf8)
    #expect(chmod(program, 0o700) == 0)
    try await withService(program: program) { service in
      try await eventually { Self.descendants(of: service.processIdentifier).count >= 2 }
      let all = Self.descendants(of: service.processIdentifier)
      kill(all[0], SIGKILL)
      try await eventually { all.allSatisfy { Self.hasEnded($0) } }
      #expect(all.dropFirst().allSatisfy { kill($0, 0) == 0 }, "they are inherited")
      let id = try await service.submit(url: origin.url("/0.png"))
      #expect(try await service.finished(id)["phase"] as? String == "success")
      try await eventually { all.allSatisfy { kill($0, 0) != 0 } }
    }
  }

  @Test(
    "hanging decoder processes make the service not ready until they respond",
    .enabled(if: ProcessInfo.processInfo.environment["LONG_TESTS"] == "1"),
    .timeLimit(.minutes(15)))
  func standing() async throws {
    try await withService { service in
      try await eventually { Self.descendants(of: service.processIdentifier).count >= 2 }
      let decoders = Self.descendants(of: service.processIdentifier)
      for decoder in decoders { kill(decoder, SIGSTOP) }
      // A canary is due after half a minute, and may take a quarter.
      try await eventually {
        String(decoding: try await service.get("/metrics").body, as: UTF8.self)
          .contains("imagefetch_canaries_total 1")
      }
      try await eventually { try await service.get("/readyz").status == 503 }
      #expect(try await service.get("/livez").status == 200)
      for decoder in decoders { kill(decoder, SIGCONT) }
      try await eventually { try await service.get("/readyz").status == 200 }
      #expect(service.log.contains("images can't be decoded"))
    }
  }

  @Test("decoder processes can be turned off")
  func none() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for path in ["/0.png", "/1.png", "/2.png"] {
      origin.on(path, .ok(Fixtures.smallPNG, type: "image/png"))
    }
    try await withService(["IMAGEFETCH_DECODE_ISOLATION": "none"]) { service in
      let id = try await service.submit(url: origin.url("/0.png"))
      #expect(try await service.finished(id)["phase"] as? String == "success")
      #expect(Self.descendants(of: service.processIdentifier).isEmpty)
    }
  }

  /// Returns the descendants of a process, the nearest first.
  private static func descendants(of process: Int32) -> [Int32] {
    let tasks = "/proc/\(process)/task"
    let threads = (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []
    let children = threads.flatMap { thread in
      (try? file("\(tasks)/\(thread)/children"))?.split(separator: " ").compactMap { Int32($0) }
        ?? []
    }
    return children + children.flatMap { descendants(of: $0) }
  }

  /// Whether a process is gone, or a zombie that its parent has not collected.
  private static func hasEnded(_ process: Int32) -> Bool {
    guard let status = try? file("/proc/\(process)/status") else { return true }
    return status.contains("State:\tZ")
  }

  private static func file(_ path: String) throws -> String {
    try String(contentsOfFile: path, encoding: .utf8)
  }

  /// - Returns: Nil if only root may read it.
  private static func maps(of process: Int32) -> String? {
    // A file in /proc has no size and is read in pieces.
    guard let handle = FileHandle(forReadingAtPath: "/proc/\(process)/maps") else { return nil }
    var text = Data()
    while let piece = try? handle.read(upToCount: 4096), !piece.isEmpty { text += piece }
    return String(decoding: text, as: UTF8.self)
  }

  /// - Returns: Nil if only root may read it.
  private static func memory(of process: Int32, holds secret: String) -> Bool? {
    let memory = open("/proc/\(process)/mem", O_RDONLY | O_CLOEXEC)
    guard memory >= 0 else { return nil }
    defer { close(memory) }
    guard let maps = maps(of: process) else { return nil }
    for line in maps.split(separator: "\n") where line.contains(" rw") {
      let ends = line.prefix { $0 != " " }.split(separator: "-").compactMap { Int($0, radix: 16) }
      guard ends.count == 2, ends[1] - ends[0] < 1 << 30 else { continue }
      var bytes = Data(count: ends[1] - ends[0])
      let count = bytes.withUnsafeMutableBytes { pread(memory, $0.baseAddress, $0.count, ends[0]) }
      if count > 0, bytes.prefix(count).range(of: Data(secret.utf8)) != nil { return true }
    }
    return false
  }
}
