import Foundation
import TestSupport
import Testing

@Suite("An image without an origin", .timeLimit(.minutes(15)))
struct LocalAndCapturedTests {
  private let png = Fixtures.smallPNG

  /// Runs the body with a service that has a folder of local images. Passes the folder's path.
  private func withLocalImages(
    _ body: (RunningService, String) async throws -> Void
  ) async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let root = folder + "/images"
    try FileManager.default.createDirectory(
      atPath: root + "/cats", withIntermediateDirectories: true)
    try Data(png).write(to: URL(fileURLWithPath: root + "/cats/small.png"))
    try Data(Fixtures.png).write(to: URL(fileURLWithPath: folder + "/secret.png"))
    try await withPipeline(["sources.local_root": root]) { service, _ in
      try await body(service, root)
    }
  }

  @Test("a local image is read, decoded and kept like any other, but not cached")
  func local() async throws {
    try await withLocalImages { service, root in
      let job = try await service.run(["local": "cats/small.png", "integrity": integrity(png)])
      #expect(job.phase == "success" && job.cache == nil && job.attempts == 0, "\(job.summary)")
      #expect(job.source.local == "cats/small.png" && job.image?.url == nil)
      #expect(job.progress.completed == png.count && job.progress.total == png.count)
      #expect(try await service.get("/cache").json()["entries"] as? Int == 0)
      // The file is read when its job is loaded. The first job keeps its bytes.
      let file = URL(fileURLWithPath: root + "/cats/small.png")
      try Data(image("new")).write(to: file)
      let next = try await service.run(["local": "cats/small.png"])
      #expect(try await service.image(of: next.id) == image("new"))
      try FileManager.default.removeItem(at: file)
      #expect(try await service.image(of: job.id) == png)
      let answer = try await service.get("/jobs/\(job.id)/image")
      #expect(answer.headers["cache-status"] == "imagefetch; fwd=bypass")
    }
  }

  @Test(
    "a name that leaves the folder is refused",
    arguments: [
      "../secret.png", "cats/../../secret.png", "/etc/passwd", "cats/../cats/small.png", "./cats",
      "cats//small.png", "..", ".", "", "out/secret.png", "link.png", "absolute.png",
      "cats\\small.png", "cats/small.png\u{0}", "..%2fsecret.png/..",
    ])
  func escapes(name: String) async throws {
    try await withLocalImages { service, root in
      let files = FileManager.default
      try files.createSymbolicLink(atPath: root + "/out", withDestinationPath: "..")
      try files.createSymbolicLink(
        atPath: root + "/link.png", withDestinationPath: "../secret.png")
      try files.createSymbolicLink(
        atPath: root + "/absolute.png", withDestinationPath: root + "/cats/small.png")
      let answer = try await service.submit(["local": name])
      #expect(answer.status == 422)
      #expect(try answer.json()["code"] as? String == "invalid_local_name")
      #expect(try await service.get("/jobs").json()["jobs"] as? [String] == [])
    }
  }

  @Test("a link within the folder may be used")
  func link() async throws {
    try await withLocalImages { service, root in
      try FileManager.default.createSymbolicLink(
        atPath: root + "/link.png", withDestinationPath: "cats/small.png")
      #expect(try await service.run(["local": "link.png"]).phase == "success")
    }
  }

  @Test("a FIFO, a socket, a folder and a device are refused, because reading could block")
  func special() async throws {
    try await withLocalImages { service, root in
      #expect(mkfifo(root + "/fifo", 0o600) == 0)
      #expect(symlink("/dev/zero", root + "/zero") == 0)
      for name in ["fifo", "cats", "zero"] {
        let answer = try await service.submit(["local": name])
        #expect(answer.status == 422, "\(name)")
        #expect(try answer.json()["code"] as? String == "invalid_local_name")
      }
    }
  }

  @Test("a link that leaves the folder and was created after the submission fails the job")
  func swapped() async throws {
    try await withLocalImages { service, root in
      // The file does not exist when the job is submitted. That is not an invalid name.
      let missing = try await service.run(["local": "later.png"])
      #expect(missing.error?.code == "local_not_found" && missing.error?.retryable == false)
      try FileManager.default.createSymbolicLink(
        atPath: root + "/later.png", withDestinationPath: "../secret.png")
      try await service.fetchAgain(missing.id)
      let job = try await service.outcome(missing.id)
      #expect(job.phase == "failure" && job.error?.code == "local_not_found")
    }
  }

  @Test("a broken image fails, whatever its source")
  func broken() async throws {
    try await withLocalImages { service, root in
      let cut = Array(png.dropLast(20))
      try Data(cut).write(to: URL(fileURLWithPath: root + "/cut.png"))
      try Data().write(to: URL(fileURLWithPath: root + "/empty.png"))
      #expect(try await service.run(["local": "cut.png"]).error?.code == "decode_failed")
      #expect(try await service.run(["local": "empty.png"]).error?.code == "no_data")
      for (body, code) in [(cut, "decode_failed"), (Array("text".utf8), "unsupported_format")] {
        let captured = try await service.capture(body)
        #expect(captured.error?.code == code && captured.error?.retryable == false)
        #expect(captured.attempts == 0 && captured.cache == nil)
      }
    }
  }

  @Test("a job's limits apply")
  func limits() async throws {
    try await withLocalImages { service, _ in
      let small = try await service.run(["local": "cats/small.png", "max_bytes": 100])
      #expect(small.error?.code == "too_large")
      let few = try await service.run(["local": "cats/small.png", "max_pixels": 10])
      #expect(few.error?.code == "too_many_pixels")
      let captured = try await service.capture(png, query: "?max_pixels=10")
      #expect(captured.error?.code == "too_many_pixels")
    }
  }

  @Test("an uploaded image is decoded and kept for each job, and never cached")
  func captured() async throws {
    try await withPipeline { service, _ in
      let jobs = [try await service.capture(png), try await service.capture(png)]
      for job in jobs {
        #expect(job.phase == "success" && job.cache == nil && job.attempts == 0, "\(job.summary)")
        #expect(job.progress.completed == png.count && job.progress.total == png.count)
        #expect(try await service.image(of: job.id) == png)
        let answer = try await service.get("/jobs/\(job.id)/image")
        #expect(answer.headers["cache-status"] == "imagefetch; fwd=bypass")
      }
      #expect(try await service.get("/cache").json()["entries"] as? Int == 0)
      #expect(try FileManager.default.images(below: service.folder).count == 1)
      let wrong = try await service.capture(
        png, query: "?integrity=" + integrity([]).replacing("+", with: "%2B"))
      #expect(wrong.error?.code == "integrity_mismatch")
    }
  }

  @Test("an image in a form is kept like one that is the whole body")
  func form() async throws {
    try await withPipeline { service, _ in
      var body = Data(
        """
        --edge\r
        Content-Disposition: form-data; name="options"\r
        Content-Type: application/json\r
        \r
        {"tags": ["camera"]}\r
        --edge\r
        Content-Disposition: form-data; name="image"; filename="small.png"\r
        Content-Type: image/png\r
        \r\n
        """.utf8)
      body += Data(png) + Data("\r\n--edge--\r\n".utf8)
      let answer = try await service.send(
        "POST", "/jobs", headers: ["Content-Type": "multipart/form-data; boundary=edge"],
        body: body)
      #expect(answer.status == 202)
      let id = try #require(try answer.json()["id"] as? String)
      let job = try await service.outcome(id)
      #expect(job.phase == "success" && job.cache == nil, "\(job.summary)")
      #expect(try await service.image(of: id) == png)
    }
  }
}

extension RunningService {
  /// Uploads bytes as an image and waits for the job's end.
  func capture(_ bytes: [UInt8], query: String = "") async throws -> ShownJob {
    let answer = try await send(
      "POST", "/jobs\(query)", headers: ["Content-Type": "image/png"], body: Data(bytes))
    try #require(answer.status == 202)
    return try await outcome(try #require(try answer.json()["id"] as? String))
  }
}
