import Foundation
import TestSupport
import Testing

@Suite("The get command on a terminal", .timeLimit(.minutes(15)))
struct GetTerminalTests {
  @Test("bars are redrawn in place below finished lines, and the terminal is restored")
  func bars() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let picture = Fixtures.image("photo.jpg")
    origin.on(
      "/slow.jpg", .dripped(picture, size: picture.count / 15 + 1, every: .milliseconds(200)))
    origin.on("/fast.png", .ok(Fixtures.png))
    try await inFolder { folder async throws in
      let text = try await onTerminal(
        "'\(origin.url("/slow.jpg"))' '\(origin.url("/fast.png"))' '\(origin.url("/no\u{1B}[2Jne"))'",
        columns: 90, in: folder, status: 3)
      #expect(try FileManager.default.names(in: folder) == ["fast.png", "slow.jpg"])
      // The bar is half full, with both kinds of characters.
      let bar = #/slow\.jpg +#+-+ +[\d.]+ k?B/23 kB( +[\d.]+ k?B/s)? +loading/#
      #expect(text.contains(bar), "\(text)")
      #expect(text.contains("saved fast.png  "))
      #expect(text.contains("failed http://127.0.0.1:"))
      #expect(!text.contains("\u{1B}[2J"), "an escape sequence from the URL")
      #expect(!text.contains(#/\u{1B}\[[0-9;]*m/#), "a color")
      // The cursor is visible again, below all lines.
      #expect(
        text.contains(
          #/2 saved \([\d.]+ kB\), 1 failed, [\d.]+ s\u{1B}\[K\r\n\u{1B}\[J\u{1B}\[\?25h$/#),
        "\(text.suffix(80))")
      #expect(text.contains("2 of 3: "), "the progress")
      // In Swift, a terminal's line end (CR LF) is one character.
      for line in text.split(whereSeparator: \.isNewline) {
        let bare = line.replacing(#/\u{1B}\[[?0-9]*[A-Za-z]/#, with: "")
        if bare.contains("/s") { #expect(bare.count < 90, "\(bare)") }
      }
    }
  }

  @Test("jobs of a list that load on a remote service are shown in the same way")
  func list() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let picture = Fixtures.image("photo.jpg")
    origin.on(
      "/slow.jpg", .dripped(picture, size: picture.count / 15 + 1, every: .milliseconds(200)))
    origin.on("/fast.png", .ok(Fixtures.png))
    try await withService { service async throws in
      try await inFolder { folder async throws in
        let list = ["/slow.jpg", "/fast.png", "/none.png"].map(origin.url).joined(separator: "\n")
        try Data(list.utf8).write(to: URL(filePath: folder + "/list"))
        let text = try await onTerminal(
          "--server \(service.base) -i list -o out/", columns: 90, in: folder, status: 3)
        #expect(try FileManager.default.names(in: folder + "/out") == ["fast.png", "slow.jpg"])
        let bar = #/slow\.jpg +#+-+ +[\d.]+ k?B/23 kB( +[\d.]+ k?B/s)? +loading/#
        #expect(text.contains(bar), "\(text)")
        #expect(text.contains("2 of 3: ") && text.contains("saved out/fast.png  "))
        #expect(text.contains(#/2 saved \([\d.]+ kB\), 1 failed, [\d.]+ s/#))
        let batches = try await service.get("/batches").json()["batches"] as? [Any]
        #expect(batches?.count == 1)
      }
    }
  }

  @Test("an interrupted run restores the cursor and counts the cancelled jobs")
  func interrupted() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/slow.png", .stalled(Fixtures.png, after: 50))
    try await inFolder { folder async throws in
      // The terminal's interrupt character, typed after the second bar was drawn.
      let text = try await onTerminal(
        "'\(origin.url("/slow.png"))'", columns: 80, in: folder, status: 130, types: "\u{3}",
        once: "loading")
      #expect(text.hasSuffix("\u{1B}[?25h"), "\(text.suffix(80))")
      #expect(text.contains("0 saved, 0 failed, 1 cancelled, "), "\(text.suffix(200))")
    }
  }

  /// Returns what the command wrote to a terminal.
  private func onTerminal(
    _ arguments: String, columns: Int, in folder: String, status: Int32, types: String? = nil,
    once sign: String = ""
  ) async throws -> String {
    let program = RunningService.executable
    let command = "stty rows 24 cols \(columns); exec '\(program)' get \(arguments)"
    let running = try GetCommand(
      ["--command", command, "/dev/null"], in: folder,
      settings: ["TERM": "xterm", "LC_ALL": "C", "NO_COLOR": "1"],
      command: ["script", "--quiet", "--return"])
    if let types {
      try await eventually { running.outputSoFar.contains(sign) }
      try await running.write(types)
    }
    let result = try await running.ended()
    try running.endList()
    #expect(result.status == status, "\(result)")
    return String(decoding: result.output, as: UTF8.self)
  }
}
