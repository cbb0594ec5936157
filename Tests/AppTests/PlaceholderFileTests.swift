import Foundation
import TestSupport
import Testing

@Suite("The operator's placeholders", .timeLimit(.minutes(15)))
struct PlaceholderFileTests {
  private let images = Readme.root + "Tests/Fixtures/images/"

  @Test("placeholders replace images, unchanged or as variants")
  func files() async throws {
    let settings = [
      "placeholders.loading": images + "small.png", "placeholders.failure": images + "photo.webp",
    ]
    try await withPipeline(settings) { service, origin in
      origin.on("/slow.jpg", .stalled(Fixtures.jpeg, after: 500))
      let slow = try await service.post(["url": origin.url("/slow.jpg")])
      let failed = try await service.run(["url": origin.url("/none.png")]).id
      let loading = try await service.get("/jobs/\(slow)/image?placeholder=true")
      #expect(Array(loading.body) == Fixtures.smallPNG)
      #expect(loading.headers["image-phase"] == "loading")
      let failure = try await service.get("/jobs/\(failed)/image?placeholder=true")
      #expect(failure.headers["content-type"] == "image/webp")
      #expect(failure.headers["image-phase"] == "failure")
      let small = try await service.get(
        "/jobs/\(failed)/image?placeholder=true&width=40&format=jpeg")
      let shown = try #require(try await ShownPixels(Array(small.body)))
      #expect(shown.width == 40 && shown.format == "JPEG")
      try await service.cancel(slow)
    }
  }

  @Test("an unusable placeholder is reported as the operator's mistake")
  func broken() throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let path = folder + "/cut.png"
    let fifo = folder + "/fifo"
    try #require(mkfifo(fifo, 0o600) == 0)
    try Data(Fixtures.png.dropLast(100)).write(to: URL(filePath: path))
    for (file, complaint) in [
      (
        path,
        "placeholders.loading: \"\(path)\" can't be shown: the image ends before its last pixel"
      ),
      (Readme.root + "README.md", "can't be shown: "), (fifo, "is not a file"),
      (folder + "/none.png", "cannot be read"),
    ] {
      let environment = [
        "IMAGEFETCH_PLACEHOLDERS_LOADING": file, "IMAGEFETCH_STORAGE_PATH": folder + "/data",
        "IMAGEFETCH_SERVER_PORT": "0",
      ]
      try "".write(toFile: folder + "/empty.yaml", atomically: true, encoding: .utf8)
      for command in [["serve"], ["check", "--config", folder + "/empty.yaml"]] {
        let run = try CommandRun(command, environment)
        #expect(run.status == 1)
        #expect(run.error.contains(complaint), "\(run.error)")
      }
    }
  }
}
