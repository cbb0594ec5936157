import Foundation
import Synchronization
import TestSupport
import Testing

@Suite("The get command with a remote service", .timeLimit(.minutes(15)))
struct GetFromServerTests {
  @Test("the options of the command become options of each job")
  func wishes() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.png", .ok(Fixtures.png))
    try await withService { service async throws in
      try await inFolder { folder async throws in
        let result = try await GetCommand.run(
          [
            "--server", service.base + "/", "--header", "X-Color: green", "--tag", "pets", "--tag",
            "b", "--priority", "high", "--cache", "no-store", origin.url("/cat.png"),
          ], in: folder)
        #expect(result.status == 0, "\(result)")
      }
      #expect(origin.requests(to: "/cat.png").first?.header("X-Color") == "green")
      let list = try await service.get("/jobs?tag=pets").json()
      let job = try #require((list["jobs"] as? [[String: Any]])?.first)
      #expect(job["priority"] as? String == "high" && job["tags"] as? [String] == ["pets", "b"])
      #expect((job["cache"] as? [String: Any])?["status"] as? String == "bypass")
    }
  }

  @Test("the token is sent, and its refusal is reported")
  func token() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.png", .ok(Fixtures.png))
    try await inFolder { folder async throws in
      let secret = "s3cret"
      try Data("\(secret)\n".utf8).write(to: URL(filePath: folder + "/token"))
      let tokens = "[{name: web, token_file: \(folder)/token, scopes: [jobs]}]"
      try await withService(["IMAGEFETCH_AUTH_TOKENS": tokens]) { service async throws in
        let arguments = ["--server", service.base, origin.url("/cat.png"), "-o", "images/"]
        let none = try await GetCommand.run(arguments, in: folder)
        #expect(none.status == 1 && none.errors.contains("--token-file"), "\(none)")
        let wrong = try await GetCommand.run(
          arguments, in: folder, settings: ["IMAGEFETCH_TOKEN": "another"])
        #expect(wrong.status == 1 && !wrong.errors.contains("another"))
        #expect(origin.requests.isEmpty)
        let file = try await GetCommand.run(
          arguments + ["--token-file", folder + "/token"], in: folder)
        #expect(file.status == 0, "\(file)")
        let variable = try await GetCommand.run(
          arguments, in: folder, settings: ["IMAGEFETCH_TOKEN": secret])
        #expect(variable.status == 0, "\(variable)")
        #expect(try FileManager.default.names(in: folder + "/images").count == 2)
      }
    }
  }

  @Test("an interrupted run cancels its jobs on the service but not finished ones")
  func interrupted() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.png", .ok(Fixtures.png))
    origin.on("/slow.png", .stalled(Fixtures.png, after: 50))
    try await withService { service async throws in
      try await inFolder { folder async throws in
        let command = try GetCommand(
          ["--server", service.base, origin.url("/cat.png"), origin.url("/slow.png")], in: folder)
        #expect(await origin.waitForRequests(to: "/slow.png"))
        try await eventually { command.outputSoFar.contains("saved\tcat.png") }
        command.signal(SIGINT)
        let result = try await command.ended()
        #expect(result.status == 130 && result.errors.isEmpty, "\(result)")
        #expect(try FileManager.default.names(in: folder) == ["cat.png"])
      }
      let jobs = try #require(try await service.get("/jobs").json()["jobs"] as? [[String: Any]])
      var phases: [String: String] = [:]
      for job in jobs {
        let url = (job["source"] as? [String: Any])?["url"] as? String ?? ""
        phases[url] = job["phase"] as? String
      }
      #expect(
        phases == [origin.url("/cat.png"): "success", origin.url("/slow.png"): "cancelled"])
    }
  }

  @Test("a service that does not respond, or responds too much, does not block the run")
  func misbehaving() async throws {
    let server = try ScriptedOrigin()
    defer { server.stop() }
    try await inFolder { folder async throws in
      server.on("/endless/jobs", .endless())
      let endless = try await GetCommand.run(
        ["--server", server.url("/endless"), "http://a/b"], in: folder)
      #expect(endless.status == 1 && endless.errors.contains("a larger response"), "\(endless)")

      server.on("/silent/jobs", .silent)
      let silent = try GetCommand(["--server", server.url("/silent"), "http://a/b"], in: folder)
      #expect(await server.waitForRequests(to: "/silent/jobs"))
      silent.signal(SIGINT)
      #expect(try await silent.ended().status == 130)

      // A job may have been accepted. The run waits for that, but not after a second signal.
      server.on("/late/jobs", inOrder: [.ok(Array("{}".utf8)), .silent])
      let late = try GetCommand(["--server", server.url("/late"), "http://a/b"], in: folder)
      #expect(await server.waitForRequests(to: "/late/jobs", count: 2))
      try await eventually {
        late.signal(SIGINT)
        return !late.isRunning
      }
      #expect(try await late.ended().status == 130)
    }
  }

  @Test("no image is lost if the service is killed and restarted during a run")
  func restart() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let isOpen = Switch()
    for number in 0..<4 {
      origin.on("/\(number).png") { _ in
        isOpen.isOn ? .ok(Fixtures.png) : .stalled(Fixtures.png, after: 50)
      }
    }
    try await inFolder { folder async throws in
      let before = try await RunningService(folder: folder)
      let urls = (0..<4).map { origin.url("/\($0).png") }
      let command = try GetCommand(["--server", before.base, "-o", "out/"] + urls, in: folder)
      for number in 0..<4 { #expect(await origin.waitForRequests(to: "/\(number).png")) }
      try await before.kill()
      isOpen.turnOn()
      let port = try #require(before.base.split(separator: ":").last)
      let after = try await RunningService(
        folder: folder, settings: ["IMAGEFETCH_SERVER_PORT": String(port)])
      let result = try await command.ended()
      #expect(result.status == 0, "\(result)")
      #expect(try FileManager.default.names(in: folder + "/out").count == 4)
      #expect(try await after.stop() == 0)
    }
  }

  @Test("a run waits while the queue is full or the rate is limited")
  func crowded() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.png", .ok(Fixtures.smallPNG))
    let settings = [
      "IMAGEFETCH_JOBS_MAX_QUEUED": "1", "IMAGEFETCH_JOBS_WORKERS": "1",
      "IMAGEFETCH_AUTH_RATE_LIMIT_REQUESTS_PER_SECOND": "20",
      "IMAGEFETCH_AUTH_RATE_LIMIT_BURST": "2", "IMAGEFETCH_CACHE_ENABLED": "false",
    ]
    try await withService(settings) { service async throws in
      try await inFolder { folder async throws in
        let urls = (0..<12).map { origin.url("/cat.png?\($0)") }
        let result = try await GetCommand.run(["--server", service.base] + urls, in: folder)
        #expect(result.status == 0, "\(result)")
        #expect(try FileManager.default.names(in: folder).count == 12)
      }
    }
  }
}

/// A flag that is set once and read by all threads.
private final class Switch: Sendable {
  private let state = Mutex(false)
  var isOn: Bool { state.withLock { $0 } }
  func turnOn() { state.withLock { $0 = true } }
}
