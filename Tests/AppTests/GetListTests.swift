import Foundation
import TestSupport
import Testing

@Suite("Repeated runs with lists", .timeLimit(.minutes(15)))
struct GetListTests {
  @Test("a list is read from a file, in addition to arguments")
  func input() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for path in ["/a.png", "/b.png", "/c.png"] { origin.on(path, .ok(Fixtures.png)) }
    try await inFolder { folder async throws in
      let list = "\(origin.url("/b.png"))\r\n\n  \(origin.url("/c.png"))"
      try Data(list.utf8).write(to: URL(filePath: folder + "/list.txt"))
      let result = try await GetCommand.run(
        [origin.url("/a.png"), "-i", "list.txt", "-o", "out/"], in: folder)
      #expect(result.status == 0, "\(result)")
      let names = try FileManager.default.names(in: folder + "/out")
      #expect(names == ["a.png", "b.png", "c.png"])
      let piped = try await GetCommand.run(
        ["-i", "-", "-o", "piped/"], in: folder, list: origin.url("/a.png"))
      #expect(piped.status == 0)
      #expect(try FileManager.default.names(in: folder + "/piped") == ["a.png"])
    }
  }

  @Test("only missing images are fetched, whatever the result of an earlier run")
  func skipping() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for path in ["/a.png", "/b.jpg", "/other/a.png"] { origin.on(path, .ok(Fixtures.png)) }
    try await inFolder { folder async throws in
      let urls = ["/a.png", "/b.jpg", "/none.png", "/a.png", "/other/a.png"].map(origin.url)
      let arguments = urls + ["--skip-existing", "--parallel", "1", "-o", "out/"]
      let first = try await GetCommand.run(arguments, in: folder)
      #expect(first.status == 3)
      // A repeated URL is requested once. Another URL gets its own file.
      #expect(first.lines.map { $0[0] } == ["saved", "saved", "failed", "skipped", "saved"])
      #expect(first.lines.map { $0[1] }[2...3] == ["origin_status", ""])
      let names = try FileManager.default.names(in: folder + "/out").map {
        $0.replacing(#/-[0-9a-f]{16}\./#, with: "-D.")
      }
      #expect(names == ["a-D.png", "a-D.png", "b-D.png"])
      let asked = origin.requests.count
      origin.on("/none.png", .ok(Fixtures.png))
      let second = try await GetCommand.run(arguments, in: folder)
      #expect(second.lines.map { $0[0] } == ["skipped", "skipped", "saved", "skipped", "skipped"])
      #expect(second.lines[1][1] == first.lines[1][1], "whatever its format")
      #expect(origin.requests.count == asked + 1)
      // Another variant is another image.
      let smaller = ["-o", "out/", "--skip-existing", "--width", "9", urls[0]]
      #expect(try await GetCommand.run(smaller, in: folder).lines.first?[0] == "saved")
      #expect(try await GetCommand.run(smaller, in: folder).lines.first?[0] == "skipped")
    }
  }

  @Test("files are named by a template, in folders that are created below the output folder")
  func template() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let paths = [
      "/a/b/cat.php", "/..%2f..%2fetc/passwd.png", "/%2e%2e/%2e%2e/x.png", "/.ssh/-rf.png", "/",
    ]
    for path in paths + ["/x.png"] { origin.on(path, .ok(Fixtures.png)) }
    try await inFolder { folder async throws in
      try FileManager.default.createDirectory(
        atPath: folder + "/in", withIntermediateDirectories: true)
      let result = try await GetCommand.run(
        paths.map(origin.url) + [
          "-o", "in", "--output-template", "{host}/{path}/{index}-{name}.{ext}",
        ],
        in: folder)
      #expect(result.status == 0, "\(result)")
      #expect(try FileManager.default.names(in: folder) == ["in"])
      let saved = Set(result.lines.map { $0[1] })
      #expect(
        saved == [
          "in/127.0.0.1/a/b/1-cat.png", "in/127.0.0.1/etc/2-passwd.png", "in/127.0.0.1/3-x.png",
          "in/127.0.0.1/ssh/4-rf.png", "in/127.0.0.1/5-image.png",
        ])
      for path in saved { #expect(FileManager.default.fileExists(atPath: "\(folder)/\(path)")) }
      // The template's fixed extension selects the format, as for a file.
      let other = try await GetCommand.run(
        [origin.url(paths[0]), "-o", "in", "--output-template", "{name}.webp"], in: folder)
      #expect(other.status == 0)
      let bytes = FileManager.default.contents(atPath: folder + "/in/cat.webp")
      #expect(bytes.map { $0.prefix(4) } == Data("RIFF".utf8))
    }
  }

  @Test("outcomes are printed as JSON, one object per line")
  func json() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/a.png", .ok(Fixtures.png))
    try await inFolder { folder async throws in
      let urls = [origin.url("/a.png"), origin.url("/a.png"), "no\u{9B}2J\u{202E}\"URL"]
      let arguments = urls + ["--json", "--skip-existing", "--parallel", "1"]
      let result = try await GetCommand.run(arguments, in: folder)
      let text = String(decoding: result.output, as: UTF8.self)
      #expect(text.hasSuffix("}\n") && text.utf8.allSatisfy { 0x20...0x7E ~= $0 || $0 == 0x0A })
      let lines = try text.split(separator: "\n").map {
        try #require(JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
      }
      try #require(lines.count == 3)
      #expect(lines.map { $0["url"] as? String } == urls)
      #expect(lines.map { $0["state"] as? String } == ["saved", "skipped", "failed"])
      let path = lines[0]["path"] as? String
      #expect(path?.wholeMatch(of: #/a-[0-9a-f]{16}\.png/#) != nil)
      #expect(lines[0]["bytes"] as? Int == Fixtures.png.count)
      #expect(lines[0]["format"] as? String == "png")
      #expect((lines[0]["width"] as? Int ?? 0) > 0 && (lines[0]["height"] as? Int ?? 0) > 0)
      #expect(lines[1].keys.sorted() == ["state", "url"])
      let error = try #require(lines[2]["error"] as? [String: String])
      #expect(error["code"] == "invalid_url" && error["detail"]?.isEmpty == false)
    }
  }

  @Test(
    "an impossible request is a usage error or a mistake in one line",
    arguments: [
      (["--output-template", "../{name}.{ext}"], 2), (["--output-template", "/x/{name}.{ext}"], 2),
      (["--output-template", "{nam}.{ext}"], 2), (["--output-template", "{name}"], 2),
      (["--output-template", "{name}.{ext"], 2), (["--output-template", "a/./{name}.jpg"], 2),
      (["--output-template", "{name}.{ext}", "-o", "x.jpg"], 2), (["-i", "-", "-"], 2),
      (["-o", "-", "--skip-existing"], 2), (["-o", "a.png", "--skip-existing"], 2),
      (["-i", "none.txt"], 1),
    ] as [([String], Int32)])
  func mistakes(arguments: [String], status: Int32) async throws {
    try await inFolder { folder async throws in
      let result = try await GetCommand.run(["http://127.0.0.1:1/x"] + arguments, in: folder)
      #expect(result.status == status && result.output.isEmpty, "\(result)")
      #expect(!result.errors.isEmpty)
      #expect(try FileManager.default.names(in: folder).isEmpty)
    }
  }

  @Test("a run that cannot begin, or saves nothing, leaves no folder")
  func folders() async throws {
    try await inFolder { folder async throws in
      let settings = ["IMAGEFETCH_PLACEHOLDERS_LOADING": "/none.png", "TMPDIR": folder]
      let failed = try await GetCommand.run(
        ["http://127.0.0.1:1/x", "-o", "a/b/"], in: folder, settings: settings)
      #expect(failed.status == 1, "\(failed)")
      let refused = try await GetCommand.run(["nonsense", "-o", "a/b/"], in: folder)
      #expect(refused.status == 3)
      #expect(try FileManager.default.names(in: folder).isEmpty)
    }
  }
}

@Suite("A failed start of the service", .timeLimit(.minutes(15)))
struct FailedStartTests {
  @Test("a failed start deletes only the data folder that it created")
  func folder() async throws {
    let taken = try ScriptedOrigin()
    defer { taken.stop() }
    let port = try #require(URL(string: taken.url("/"))?.port)
    try await inFolder { folder async throws in
      func start(_ path: String) throws -> CommandRun {
        try CommandRun(
          ["serve", "--port", "\(port)"],
          ["IMAGEFETCH_STORAGE_PATH": "\(folder)/\(path)"])
      }
      let run = try start("new/data")
      #expect(run.status == 1 && run.error.contains("can't listen on"), "\(run.error)")
      #expect(try FileManager.default.names(in: folder).isEmpty)
      try FileManager.default.createDirectory(
        atPath: folder + "/old/data", withIntermediateDirectories: true)
      #expect(try start("old/data").status == 1)
      #expect(FileManager.default.fileExists(atPath: folder + "/old/data/jobs.sqlite"))
    }
  }
}
