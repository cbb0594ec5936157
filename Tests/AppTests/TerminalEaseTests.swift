import Foundation
import TestSupport
import Testing

/// Features that make the manual unnecessary at a terminal.
@Suite("A user at a terminal", .timeLimit(.minutes(15)))
struct TerminalEaseTests {
  @Test("a file's extension selects the format, and an image of that format stays unchanged")
  func endings() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat", .ok(Fixtures.jpeg, type: "image/jpeg"))
    try await inFolder { folder async throws in
      let asked: [(arguments: [String], start: [UInt8])] = [
        (["-o", "a.webp"], Array("RIFF".utf8)), (["-o", "a.PNG"], [0x89, 0x50, 0x4E, 0x47]),
        (["-o", "b.jpeg", "--width", "20"], [0xFF, 0xD8]),
        // An explicit format has priority.
        (["-o", "c.jpg", "--format", "webp"], Array("RIFF".utf8)),
      ]
      for (arguments, start) in asked {
        let result = try await GetCommand.run([origin.url("/cat")] + arguments, in: folder)
        #expect(result.status == 0, "\(result)")
        let bytes = FileManager.default.contents(atPath: "\(folder)/\(arguments[1])")
        let head = bytes.map { Array($0.prefix(start.count)) }
        #expect(head == start, "\(arguments)")
      }
      for name in ["d.jpg", "e.JPEG", "f", "g.dat"] {
        let result = try await GetCommand.run([origin.url("/cat"), "-o", name], in: folder)
        #expect(result.status == 0)
        let bytes = FileManager.default.contents(atPath: "\(folder)/\(name)")
        #expect(bytes.map(Array.init) == Fixtures.jpeg, "\(name)")
      }
    }
  }

  @Test("a file never has the extension of another format")
  func foreignEndings() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat", .ok(Fixtures.jpeg, type: "image/jpeg"))
    origin.on("/cat.gif", .ok(Fixtures.image("animated.gif"), type: "image/gif"))
    try await inFolder { folder async throws in
      for name in ["a.gif", "a.ICO"] {
        let result = try await GetCommand.run([origin.url("/cat"), "-o", name], in: folder)
        #expect(result.status == 3 && result.lines.first?[1] == "unsupported_format", "\(result)")
      }
      #expect(try FileManager.default.names(in: folder).isEmpty)
      let result = try await GetCommand.run([origin.url("/cat.gif"), "-o", "b.gif"], in: folder)
      #expect(result.status == 0)
      let bytes = FileManager.default.contents(atPath: folder + "/b.gif")
      #expect(bytes.map(Array.init) == Fixtures.image("animated.gif"))
    }
  }

  @Test("a blocked network is reported with the flag that allows it")
  func networks() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.jpg", .ok(Fixtures.jpeg, type: "image/jpeg"))
    let usual = [
      "IMAGEFETCH_FETCH_ALLOW_NETWORKS": "", "IMAGEFETCH_FETCH_ALLOW_PORTS": "80,443",
    ]
    try await inFolder { folder async throws in
      let blocked = try await GetCommand.run(
        ["http://127.0.0.1/cat.jpg"], in: folder, settings: usual)
      #expect(blocked.status == 3)
      let line = try #require(blocked.lines.first)
      #expect(line[1] == "blocked_address")
      #expect(line[3].hasSuffix("Allow the network with --allow-network or --allow-private."))
      for flags in [["--allow-private"], ["--allow-network", "127.0.0.0/8"]] {
        let result = try await GetCommand.run(
          [origin.url("/cat.jpg")] + flags, in: folder, settings: usual)
        #expect(result.status == 0, "\(flags): \(result)")
      }
      // Cloud providers serve credentials at this address.
      let metadata = try await GetCommand.run(
        ["http://169.254.169.254/", "--allow-private"], in: folder, settings: usual)
      #expect(metadata.lines.first?[1] == "blocked_address")
      let wrong = try await GetCommand.run(
        [origin.url("/cat.jpg"), "--allow-network", "localhost"], in: folder, settings: usual)
      #expect(wrong.status == 1 && wrong.errors.contains("--allow-network"), "\(wrong)")
    }
  }

  @Test("https:// may be omitted")
  func schemes() async throws {
    let settings = ["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]
    try await inFolder { folder async throws in
      for url in ["no.invalid/cat.jpg", "no.invalid:8443/cat.jpg", "no.invalid"] {
        let result = try await GetCommand.run([url], in: folder, settings: settings)
        let told = result.lines.first.map { Array($0[1...2]) }
        #expect(told == ["dns_failure", url], "\(result)")
      }
      for text in ["nonsense", "./cat.jpg", "me@no.invalid/cat.jpg", "ftp://no.invalid/cat.jpg"] {
        let result = try await GetCommand.run([text], in: folder, settings: settings)
        #expect(result.lines.first?[1] == "invalid_url", "\(result)")
      }
    }
  }

  @Test(
    "a mistyped command is answered with a similar one",
    arguments: [
      ("serv", "imagefetch serve?"), ("gte", "imagefetch get?"),
      ("fetch", "imagefetch get?"), ("download", "imagefetch get?"), ("start", "imagefetch serve?"),
      ("example.org/cat.jpg", "imagefetch get example.org/cat.jpg?"),
    ])
  func commands(word: String, meant: String) throws {
    let run = try CommandRun([word])
    #expect(run.status == 2)
    #expect(run.error.contains("Did you mean \(meant)"), "\(run.error)")
  }

  @Test("one flag starts the service for development, and the dashboard's address is logged")
  func dev() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.jpg", .ok(Fixtures.jpeg, type: "image/jpeg"))
    let settings = [
      "IMAGEFETCH_FETCH_ALLOW_NETWORKS": "", "IMAGEFETCH_FETCH_ALLOW_PORTS": "80,443",
    ]
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try await RunningService(
      folder: folder, settings: settings, arguments: ["--dev"],
      directory: Readme.root + "Tests/Fixtures/images")
    #expect(service.log.contains(#""url":"\#(service.base)/""#))
    let view = try await service.get("/image?url=\(origin.url("/cat.jpg"))&wait=20")
    #expect(view.status == 200 && Array(view.body) == Fixtures.jpeg)
    let local = try await service.submit(["local": "photo.png"])
    #expect(local.status == 202)
    #expect(try await service.stop() == 0)
  }
}
