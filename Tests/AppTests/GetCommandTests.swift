import Foundation
import TestSupport
import Testing

@Suite("The get command with its own service", .timeLimit(.minutes(15)))
struct GetCommandTests {
  @Test("images are saved unchanged with a line each, and the exit status reports failures")
  func saves() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.jpg", .ok(Fixtures.progressiveJPEG))
    origin.on("/dog.png", .ok(Fixtures.png))
    try await inFolder { folder async throws in
      let good = [origin.url("/cat.jpg"), origin.url("/dog.png")]
      let result = try await GetCommand.run(good + ["-o", "pets/"], in: folder)
      #expect(result.status == 0 && result.errors.isEmpty, "\(result)")
      let lines = result.lines.sorted { $0[1] < $1[1] }
      try #require(lines.count == 2)
      #expect(lines[0].prefix(3) == ["saved", "pets/cat.jpg", good[0]])
      #expect(lines[0][3].hasSuffix(" jpeg \(Fixtures.progressiveJPEG.count)"))
      #expect(lines[0][3].wholeMatch(of: #/\d+x\d+ jpeg \d+/#) != nil)
      let saved = FileManager.default.contents(atPath: folder + "/pets/cat.jpg")
      #expect(saved.map(Array.init) == Fixtures.progressiveJPEG)
      #expect(try FileManager.default.names(in: folder + "/pets") == ["cat.jpg", "dog.png"])

      let bad = [origin.url("/none.jpg"), "http://169.254.169.254/x", "nonsense"]
      // The token's variable is not a configuration key and causes no error. The address that a container's
      // service listens on is ignored.
      let mixed = try await GetCommand.run(
        bad + [good[0]], in: folder,
        settings: ["IMAGEFETCH_TOKEN": "unused", "IMAGEFETCH_SERVER_HOST": "0.0.0.0"])
      #expect(mixed.status == 3 && mixed.errors.isEmpty)
      var codes: [String: String] = [:]
      for line in mixed.lines where line[0] == "failed" { codes[line[2]] = line[1] }
      #expect(codes == [bad[0]: "origin_status", bad[1]: "blocked_address", bad[2]: "invalid_url"])
      #expect(mixed.lines.contains { $0[0] == "saved" && $0[1] == "cat.jpg" })
    }
  }

  @Test("equal names get numbers, and existing files are kept")
  func collisions() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for number in 0..<12 { origin.on("/\(number)/cat.png", .ok(Fixtures.png)) }
    try await inFolder { folder async throws in
      try Data("mine".utf8).write(to: URL(filePath: folder + "/cat.png"))
      let urls = (0..<12).map { origin.url("/\($0)/cat.png") }
      let result = try await GetCommand.run(urls, in: folder)
      #expect(result.status == 0)
      #expect(try String(contentsOfFile: folder + "/cat.png", encoding: .utf8) == "mine")
      let names = try FileManager.default.names(in: folder)
      #expect(Set(names) == Set(["cat.png"] + (2...13).map { "cat-\($0).png" }))
      for name in names where name != "cat.png" {
        #expect(
          FileManager.default.contents(atPath: "\(folder)/\(name)").map(Array.init) == Fixtures.png)
      }
    }
  }

  @Test("variants have the extension of their own format")
  func variant() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.jpg", .ok(Fixtures.image("photo.jpg")))
    try await inFolder { folder async throws in
      let result = try await GetCommand.run(
        [origin.url("/cat.jpg"), "--width", "60", "--format", "png", "-q", "-o", "small.png"],
        in: folder)
      #expect(result.status == 0 && result.output.isEmpty && result.errors.isEmpty)
      let saved = try #require(FileManager.default.contents(atPath: folder + "/small.png"))
      // A PNG's first chunk contains the width.
      #expect(Array(saved.prefix(4)) == [0x89, 0x50, 0x4E, 0x47])
      #expect(Array(saved[16..<24]) == [0, 0, 0, 60, 0, 0, 0, 40])
    }
  }

  @Test("standard output contains only the image")
  func standardOutput() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.png", .ok(Fixtures.png))
    try await inFolder { folder async throws in
      let result = try await GetCommand.run(["-o", "-", origin.url("/cat.png")], in: folder)
      #expect(result.status == 0 && Array(result.output) == Fixtures.png && result.errors.isEmpty)
      let failed = try await GetCommand.run(["-o", "-", origin.url("/none.png")], in: folder)
      #expect(failed.status == 3 && failed.output.isEmpty)
      #expect(failed.errors.hasPrefix("failed\torigin_status\t"))
      #expect(try FileManager.default.names(in: folder).isEmpty)
    }
  }

  @Test(
    "the command ends quietly when the reader of its output closes it", arguments: ["", "-o - "])
  func outputClosed(options: String) async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.png", .ok(Fixtures.png).delayed(by: .milliseconds(300)))
    try await inFolder { folder async throws in
      // The reader has closed the pipe before anything is written.
      let script = """
        { "$@" \(options)'\(origin.url("/cat.png"))'; echo $? >&2; } | true
        """
      let result = try await GetCommand.run(
        [], in: folder, command: ["bash", "-c", script, "bash"] + GetCommand.command)
      #expect(result.errors == "141\n", "\(result.errors)")
    }
  }

  @Test("a list is read from standard input line by line, and a bad line fails alone")
  func list() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.png", .ok(Fixtures.png))
    try await inFolder { folder async throws in
      let command = try GetCommand(["-", origin.url("/cat.png")], in: folder)
      try await command.write(origin.url("/cat.png") + "\r\n\n")
      // Before the end of the list.
      try await eventually { command.outputSoFar.contains("saved\t") }
      let long = "http://127.0.0.1/" + String(repeating: "x", count: 9000)
      try await command.write("\(long)\n\u{1B}[2Jno\tURL\n")
      try command.endList()
      let result = try await command.ended()
      #expect(result.status == 3)
      #expect(result.lines.count { $0[0] == "saved" } == 2)
      let failed = result.lines.filter { $0[0] == "failed" }
      #expect(failed.count == 2 && failed.allSatisfy { $0[1] == "invalid_url" && $0.count == 4 })
      #expect(!result.output.contains(0x1B))
      #expect(try FileManager.default.names(in: folder) == ["cat-2.png", "cat.png"])
    }
  }

  @Test("at most the requested number of jobs run at once")
  func window() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for number in 0..<8 {
      origin.on("/\(number).png", .ok(Fixtures.smallPNG).delayed(by: .milliseconds(50)))
    }
    try await inFolder { folder async throws in
      let urls = (0..<8).map { origin.url("/\($0).png") }
      let result = try await GetCommand.run(urls + ["--parallel", "2"], in: folder)
      #expect(result.status == 0 && origin.requests.count == 8)
      #expect(origin.mostAtOnce <= 2)
    }
  }

  @Test("no name from an origin leaves the folder, hides a file or controls the terminal")
  func hostileNames() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let paths = [
      "/..%2f..%2fetc%2fpasswd.png", "/.profile", "/%1b%5b2J.png", "/a/..%00.png", "/-rf.png",
      "/%E2%80%AEgnp.png", "/",
    ]
    for path in paths { origin.on(path, .ok(Fixtures.png)) }
    try await inFolder { folder async throws in
      try FileManager.default.createDirectory(
        atPath: folder + "/in", withIntermediateDirectories: true)
      let result = try await GetCommand.run(paths.map(origin.url) + ["-o", "in"], in: folder)
      #expect(result.status == 0, "\(String(decoding: result.output, as: UTF8.self))")
      #expect(try FileManager.default.names(in: folder) == ["in"])
      let names = try FileManager.default.names(in: folder + "/in")
      #expect(names.count == paths.count)
      for name in names {
        #expect(name.wholeMatch(of: #/[A-Za-z0-9_][A-Za-z0-9_-]*\.png/#) != nil, "\(name)")
      }
    }
  }

  @Test(
    "a wrong command line is a usage error before anything is fetched",
    arguments: [
      ["--quality", "101"], ["--width", "0"], ["--fit", "squeeze"], ["--format", "gif"],
      ["--dpr", "9"], ["--background", "red"], ["--cache", "sometimes"], ["--priority", "urgent"],
      ["--header", "no field"], ["--header", "Host: a"], ["--tag", ""], ["--parallel", "0"],
      ["--server", "localhost"], ["--token-file", "x"], ["-o", "-", "http://127.0.0.1/second"],
      ["--server", "http://127.0.0.1:1", "--config", "x"], ["-", "-"], ["--nonsense"],
    ])
  func usage(arguments: [String]) async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    try await inFolder { folder async throws in
      let result = try await GetCommand.run([origin.url("/cat.png")] + arguments, in: folder)
      #expect(result.status == 2, "\(result.errors)")
      #expect(result.output.isEmpty && !result.errors.isEmpty)
      #expect(origin.requests.isEmpty)
    }
  }

  @Test("a user's mistake is reported in one line with exit status 1")
  func mistakes() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.png", .ok(Fixtures.png))
    let url = origin.url("/cat.png")
    try await inFolder { folder async throws in
      let cases: [(arguments: [String], settings: [String: String], says: String)] = [
        (["--server", "http://127.0.0.1:1"], [:], "cannot reach"),
        (["--server", origin.url("")], [:], "unexpected response from"),
        (["--server", "http://127.0.0.1:1", "--token-file", "none"], [:], "can't be read"),
        (["-o", "/dev/null/x/"], [:], "/dev/null"),
        (["-o", "/dev/full"], [:], "No space left on device"),
        (["-o", "missing/cat.png"], [:], "No such file or directory"),
        ([], ["IMAGEFETCH_FETCH_TIMEOUT": "never"], "IMAGEFETCH_FETCH_TIMEOUT"),
        (["--config", "none.yaml"], [:], "none.yaml"),
      ]
      for (arguments, settings, says) in cases {
        let result = try await GetCommand.run([url] + arguments, in: folder, settings: settings)
        #expect(result.status == 1, "\(arguments) \(result)")
        #expect(result.errors.contains(says), "\(result.errors)")
        #expect(result.errors.count { $0 == "\n" } == 1, "\(result.errors)")
      }
    }
  }

  @Test("an interrupted run leaves neither a partial image nor its data folder")
  func interrupted() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/slow.png", .stalled(Fixtures.png, after: 50))
    try await inFolder { folder async throws in
      for name in ["tmp", "out"] {
        try FileManager.default.createDirectory(
          atPath: "\(folder)/\(name)", withIntermediateDirectories: true)
      }
      let command = try GetCommand(
        [origin.url("/slow.png"), "-", "-o", "out"], in: folder,
        settings: ["TMPDIR": folder + "/tmp"])
      #expect(await origin.waitForRequests(to: "/slow.png"))
      let data = try FileManager.default.names(in: folder + "/tmp")
      #expect(data.count == 1)
      let rights = try FileManager.default.attributesOfItem(atPath: "\(folder)/tmp/\(data[0])")
      #expect((rights[.posixPermissions] as? NSNumber)?.intValue == 0o700)
      command.signal(SIGINT)
      let result = try await command.ended()
      #expect(result.status == 130 && result.output.isEmpty && result.errors.isEmpty)
      #expect(try FileManager.default.names(in: folder + "/tmp").isEmpty)
      #expect(try FileManager.default.names(in: folder + "/out").isEmpty)
    }
  }

  @Test("a signal that the command was started to ignore does not end it, as with nohup")
  func ignored() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let picture = Fixtures.image("photo.jpg")
    origin.on(
      "/slow.jpg", .dripped(picture, size: picture.count / 5 + 1, every: .milliseconds(200)))
    try await inFolder { folder async throws in
      let command = try GetCommand(
        [origin.url("/slow.jpg")], in: folder,
        command: ["sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh"] + GetCommand.command)
      #expect(await origin.waitForRequests(to: "/slow.jpg"))
      command.signal(SIGHUP)
      command.signal(SIGINT)
      let result = try await command.ended()
      #expect(result.status == 0, "\(result.errors)")
      #expect(try FileManager.default.names(in: folder) == ["slow.jpg"])
    }
  }

  @Test("a run that is interrupted at any moment of its start leaves no data folder")
  func interruptedEarly() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/slow.png", .stalled(Fixtures.png, after: 50))
    for moment in 0..<10 {
      try await inFolder { folder async throws in
        let command = try GetCommand(
          [origin.url("/slow.png"), "-o", "out/"], in: folder, settings: ["TMPDIR": folder])
        try await Task.sleep(for: .milliseconds(moment * 40))
        command.signal(SIGINT)
        _ = try await command.ended()
        let left = try FileManager.default.names(in: folder)
        #expect(left.isEmpty || left == ["out"])
      }
    }
  }

  @Test("memory contains the running jobs, not the list")
  func memory() async throws {
    try await inFolder { folder async throws in
      // Every fourth line is a job with a blocked address. The service refuses the others immediately.
      func list(_ count: Int) -> String {
        let padding = String(repeating: "x", count: 1000)
        return (0..<count).map {
          "\($0 % 4 == 0 ? "http://169.254.169.254" : "none:")/\($0)\(padding)\n"
        }.joined()
      }
      let script = """
        import resource, subprocess, sys
        status = subprocess.run(sys.argv[1:]).returncode
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
        sys.exit(status)
        """
      var peaks: [Int] = []
      for count in [500, 20_000] {
        let result = try await GetCommand.run(
          [], in: folder, list: list(count),
          command: ["python3", "-c", script] + GetCommand.command)
        #expect(result.status == 3 && result.lines.count == count)
        #expect(Set(result.lines.map { $0[2].prefix(40) }).count == count)
        peaks.append(try #require(Int(result.errors.filter(\.isNumber))))
      }
      // The list has 20 MB, and the output about its jobs as much again.
      // AddressSanitizer retains freed memory.
      if !Sanitizer.isHere { #expect(peaks[1] - peaks[0] < 16_384, "\(peaks) KiB") }
    }
  }
}
