import Foundation
import TestSupport
import Testing

@Suite("The get command with a list and a remote service", .timeLimit(.minutes(15)))
struct GetBatchTests {
  @Test("a list becomes one batch, and its lines are reported like single jobs")
  func lines() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for path in ["/a.png", "/b.png", "/there.png"] { origin.on(path, .ok(Fixtures.png)) }
    try await withService { service async throws in
      try await inFolder { folder async throws in
        let urls = ["/a.png", "/none.png", "/there.png", "/b.png", "/a.png"].map(origin.url)
        let long = "http://127.0.0.1/" + String(repeating: "x", count: 9000)
        let list = (urls + ["http://169.254.169.254/x", "no\tURL", "", long]).joined(
          separator: "\n")
        try Data(list.utf8).write(to: URL(filePath: folder + "/list.txt"))
        // An earlier run has fetched one of the images.
        let earlier = try await GetCommand.run(
          ["--server", service.base, "-o", "out/", "--skip-existing", urls[2]], in: folder)
        #expect(earlier.status == 0, "\(earlier)")
        let arguments = [
          "--server", service.base, "-i", "list.txt", "-o", "out/", "--skip-existing", "--tag",
          "pets", "--header", "X-Color: green", "--priority", "high",
        ]
        let result = try await GetCommand.run(arguments, in: folder)
        #expect(result.status == 3 && result.errors.isEmpty, "\(result)")
        let told = Dictionary(grouping: result.lines) { $0[0] }.mapValues { lines in
          Set(lines.map { $0[1].replacing(#/-[0-9a-f]{16}\./#, with: ".") })
        }
        #expect(
          told == [
            "saved": ["out/a.png", "out/b.png"], "skipped": ["out/there.png", ""],
            "failed": ["origin_status", "blocked_address", "invalid_url"],
          ])
        #expect(result.lines.count == 8)
        let path = try #require(result.lines.first { $0[2] == urls[3] }?[1])
        #expect(
          FileManager.default.contents(atPath: "\(folder)/\(path)").map(Array.init)
            == Fixtures.png)
        #expect(origin.requests(to: "/a.png").first?.header("X-Color") == "green")

        let batches = try #require(
          try await service.get("/batches").json()["batches"] as? [[String: Any]])
        #expect(batches.count == 1)
        #expect(batches.first?["state"] as? String == "finished")
        // Lines that had a file, were repeated or were too long are not sent.
        #expect(batches.first?["received"] as? Int == 5)
        #expect((batches.first?["counts"] as? [String: Int])?["rejected"] == 1)
        let jobs = try await service.get("/jobs?tag=pets").json()["jobs"] as? [[String: Any]]
        #expect(jobs?.count == 4 && jobs?.first?["priority"] as? String == "high")

        // The second run requests only the failed images.
        let again = try await GetCommand.run(arguments, in: folder)
        #expect(again.lines.count { $0[0] == "skipped" } == 4, "\(again)")
      }
    }
  }

  @Test("images are saved before the list ends, and while earlier lines hang")
  func hanging() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/hangs.png", .held(Fixtures.png, by: Gate()))
    for number in 0..<120 { origin.on("/\(number).png", .ok(Fixtures.smallPNG)) }
    try await withService { service async throws in
      try await inFolder { folder async throws in
        let command = try GetCommand(["--server", service.base, "-o", "out/"], in: folder)
        try await command.write(origin.url("/hangs.png") + "\n" + origin.url("/0.png") + "\n")
        try await eventually { command.outputSoFar.contains("saved\tout/0.png") }
        try await command.write((1..<120).map { origin.url("/\($0).png") + "\n" }.joined())
        try await eventually { command.outputSoFar.count { $0 == "\n" } == 120 }
        command.signal(SIGINT)
        let result = try await command.ended()
        #expect(result.status == 130 && result.errors.isEmpty, "\(result)")
        #expect(Set(result.lines.map { $0[1] }).count == 120)
        #expect(try FileManager.default.names(in: folder + "/out").count == 120)
      }
      // The remaining lines are cancelled.
      let batches = try await service.get("/batches").json()["batches"] as? [[String: Any]]
      #expect(batches?.count == 1 && batches?.first?["state"] as? String == "cancelled")
      try await eventually {
        let counts = try await service.get("/batches").json()["batches"] as? [[String: Any]]
        let cancelled = (counts?.first?["counts"] as? [String: Int])?["cancelled"]
        return cancelled == 1
      }
    }
  }

  @Test("a run continues after broken connections and a killed service, and saves each image once")
  func cut() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for number in 0..<400 {
      origin.on("/\(number).png", .ok(Fixtures.smallPNG).delayed(by: .milliseconds(20)))
    }
    try await inFolder { folder async throws in
      let before = try await RunningService(folder: folder)
      let port = try #require(before.base.split(separator: ":").last.flatMap { Int($0) })
      let proxy = try FaultyProxy(to: port)
      defer { proxy.stop() }
      let list = (0..<400).map { origin.url("/\($0).png") + "\n" }
      let command = try GetCommand(
        ["--server", "http://127.0.0.1:\(proxy.port)", "-o", "out/"], in: folder)
      try await command.write(list[..<200].joined())
      for _ in 0..<3 {
        let told = command.outputSoFar.count { $0 == "\n" }
        try await eventually { command.outputSoFar.count { $0 == "\n" } > told }
        proxy.become(.cut)
        try await Task.sleep(for: .milliseconds(100))
        proxy.become(.none)
      }
      try await before.kill()
      let after = try await RunningService(
        folder: folder, settings: ["IMAGEFETCH_SERVER_PORT": String(port)])
      try await command.write(list[200...].joined())
      try command.endList()
      let result = try await command.ended()
      #expect(result.status == 0, "\(result)")
      #expect(result.lines.count == 400)
      #expect(Set(result.lines.map { $0[2] }).count == 400)
      #expect(try FileManager.default.names(in: folder + "/out").count == 400)
      #expect(try await after.stop() == 0)
    }
  }

  @Test("a run continues with another batch if one accepts no more lines")
  func several() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for number in 0..<25 { origin.on("/\(number).png", .ok(Fixtures.smallPNG)) }
    try await withService(["IMAGEFETCH_API_MAX_BATCH_LINES": "10"]) { service async throws in
      try await inFolder { folder async throws in
        let list = (0..<25).map { origin.url("/\($0).png") + "\n" }.joined()
        let result = try await GetCommand.run(
          ["--server", service.base, "-o", "out/"], in: folder, list: list)
        #expect(result.status == 0 && result.lines.count == 25, "\(result)")
      }
      let batches = try await service.get("/batches").json()["batches"] as? [[String: Any]]
      #expect(batches?.map { $0["received"] as? Int } == [5, 10, 10])
      #expect(batches?.allSatisfy { $0["state"] as? String == "finished" } == true)
    }
  }

  @Test("a batch that is cancelled or has invalid options ends the run with an error")
  func ended() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/hangs.png", .held(Fixtures.png, by: Gate()))
    try await withService { service async throws in
      try await inFolder { folder async throws in
        let wrong = try await GetCommand.run(
          ["--server", service.base, "--header", "Host: a"], in: folder,
          list: origin.url("/hangs.png"))
        #expect(wrong.status == 2 && wrong.errors.contains("headers"), "\(wrong)")
        #expect(origin.requests.isEmpty)

        let command = try GetCommand(["--server", service.base], in: folder)
        try await command.write(origin.url("/hangs.png") + "\n")
        #expect(await origin.waitForRequests(to: "/hangs.png"))
        let batches = try await service.get("/batches").json()["batches"] as? [[String: Any]]
        let id = try #require(batches?.first?["id"] as? String)
        #expect(try await service.send("DELETE", "/batches/\(id)").status == 200)
        try await eventually { command.outputSoFar.contains("failed\tcancelled\t") }
        try await command.write(origin.url("/next.png") + "\n")
        let result = try await command.ended()
        #expect(result.status == 1 && result.errors.contains("was cancelled"), "\(result)")
      }
    }
  }

  @Test("animations are saved as animations on request, and still images unchanged")
  func animated() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/moves.gif", .ok(Fixtures.image("animated.gif")))
    origin.on("/still.png", .ok(Fixtures.png))
    try await withService { service async throws in
      try await inFolder { folder async throws in
        let list = origin.url("/moves.gif") + "\n" + origin.url("/still.png") + "\n"
        for (name, options) in [("here", []), ("there", ["--server", service.base])] {
          let result = try await GetCommand.run(
            options + ["-o", "\(name)/", "--animated"], in: folder, list: list)
          #expect(result.status == 0, "\(result)")
          let names = try FileManager.default.names(in: "\(folder)/\(name)")
          #expect(names == ["moves.webp", "still.png"])
          let bytes = FileManager.default.contents(atPath: "\(folder)/\(name)/moves.webp")
          // The flag for animations in the extended header (RFC 9649 section 2.7.1).
          #expect(bytes.map { $0[20] & 2 } == 2)
          #expect(
            FileManager.default.contents(atPath: "\(folder)/\(name)/still.png").map(Array.init)
              == Fixtures.png)
        }
        let wrong = try await GetCommand.run(
          ["--animated", "--format", "png", "http://127.0.0.1/x"], in: folder)
        #expect(wrong.status == 2)
      }
    }
  }
}
