import Foundation
import Jobs
import TestSupport
import Testing

/// Checks every build of the executable. `make check-release` runs these tests, and all other suites that
/// start the executable, with the released build.
@Suite("The executable", .timeLimit(.minutes(15)))
struct ExecutableTests {
  /// Runs one subcommand for its purpose.
  private typealias Run = @Sendable () async throws -> Void

  private static let runs: [String: Run] = [
    "serve": {
      try await withPipeline { service, origin async throws in
        origin.on("/x", .ok(Fixtures.smallPNG))
        #expect(try await service.run(["url": origin.url("/x")]).phase == "success")
      }
    },
    "get": {
      let origin = try ScriptedOrigin()
      defer { origin.stop() }
      origin.on("/cat.png", .ok(Fixtures.smallPNG))
      try await inFolder { folder async throws in
        let result = try await GetCommand.run([origin.url("/cat.png")], in: folder)
        #expect(result.status == 0, "\(result)")
        let saved = FileManager.default.contents(atPath: folder + "/cat.png").map(Array.init)
        #expect(saved == Fixtures.smallPNG)
      }
    },
    "sign": {
      let key = ["IMAGEFETCH_VIEW_KEYS": String(repeating: "0123456789abcdef", count: 4)]
      let run = try CommandRun(["sign", "https://example.org/a.jpg"], key)
      #expect(run.status == 0 && run.output.contains("signature="), "\(run)")
    },
    "check": {
      let run = try CommandRun(["check"])
      #expect(run.status == 0 && run.output.contains("server:"), "\(run)")
    },
    "migrate": {
      try await inFolder { folder async throws in
        let path = ["IMAGEFETCH_STORAGE_PATH": folder + "/data"]
        #expect(try CommandRun(["migrate", "--check"], path).status == 4)
        #expect(try CommandRun(["migrate"], path).status == 0)
        #expect(try CommandRun(["migrate", "--check"], path).status == 0)
      }
    },
    "health": {
      try await withService { service async throws in
        let port = try #require(URL(string: service.base)?.port)
        #expect(try CommandRun(["health"], ["IMAGEFETCH_SERVER_PORT": "\(port)"]).status == 0)
      }
    },
    "version": {
      let run = try CommandRun(["version"])
      #expect(run.status == 0 && run.output.contains("libcurl "), "\(run)")
    },
  ]

  @Test("each subcommand fulfills its purpose", arguments: runs.keys.sorted())
  func subcommand(name: String) async throws {
    let run = try #require(Self.runs[name])
    try await run()
    let help = try CommandRun([name, "--help"])
    #expect(help.status == 0 && help.output.contains("USAGE: imagefetch \(name)"), "\(help)")
  }

  @Test("every subcommand has a test, and the documentation names no other")
  func all() throws {
    struct Dump: Decodable {
      struct Command: Decodable {
        let commandName: String
        let subcommands: [Command]?
      }
      let command: Command
    }
    let dump = try CommandRun(["--experimental-dump-help"])
    let command = try JSONDecoder().decode(Dump.self, from: Data(dump.output.utf8)).command
    let names = Set(command.subcommands?.map(\.commandName) ?? []).subtracting(["help"])
    #expect(names == Set(Self.runs.keys))
    let pages = ["README.md", "docs/tour.md", "docs/operating.md", "docs/scaling.md"]
    for page in pages {
      let named = Readme.file(page).matches(of: #/(?m)(?:`|^|\| ?)imagefetch ([a-z]+)\b/#)
      #expect(!named.isEmpty, "\(page)")
      for match in named { #expect(names.contains(String(match.1)), "\(page): \(match.0)") }
    }
  }

  @Test(
    "an image of each format is fetched, and a variant of it is made",
    arguments: ImageFormat.allCases)
  func format(_ format: ImageFormat) async throws {
    let names = Fixtures.known.map { $0.name }.filter { $0.hasSuffix("." + format.fileExtension) }
    let name = try #require(names.first { $0.hasPrefix("photo.") } ?? names.sorted().first)
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/image", .ok(Fixtures.image(name)))
    let formats = ImageFormat.allCases.map(\.rawValue).joined(separator: ",")
    try await withService(["IMAGEFETCH_DECODE_FORMATS": formats]) { service in
      let job = try await service.finished(service.submit(url: origin.url("/image")))
      let image = try #require(job["image"] as? [String: Any], "\(name): \(job)")
      #expect(image["format"] as? String == format.rawValue)
      let link = try #require((job["links"] as? [String: String])?["image"])
      let whole = try await service.get(link)
      #expect(Array(whole.body) == Fixtures.image(name))
      #expect(whole.headers["content-type"] == format.contentType)
      let variant = try await service.get(link + "?width=4&format=png")
      #expect(variant.status == 200 && variant.headers["content-type"] == "image/png")
    }
  }
}
