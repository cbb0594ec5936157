import Fetch
import Foundation
import Jobs
import S3
import TestSupport
import Testing

@Suite("A service with images in a bucket", .timeLimit(.minutes(15)))
struct ObjectStoreServiceTests {
  @Test("images are available after a start on another machine with the same jobs")
  func survives() async throws {
    let bucket = try await TestBucket(prefix: "kept")
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/filed.png", .ok(Fixtures.filedPNG))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try await RunningService(folder: folder, settings: bucket.settings)
    let id = try await service.submit(url: origin.url("/filed.png"))
    #expect(try await service.finished(id)["phase"] as? String == "success")
    #expect(try await Array(service.get("/jobs/\(id)/image").body) == Fixtures.filedPNG)
    #expect(try await bucket.keys.count == 1)
    #expect(try await service.stop() == 0)
    #expect(!service.log.contains(ObjectStore.secretKey))

    try FileManager.default.removeItem(atPath: folder + "/data/copies")
    let next = try await RunningService(folder: folder, settings: bucket.settings)
    #expect(try await Array(next.get("/jobs/\(id)/image").body) == Fixtures.filedPNG)
    let range = try await next.get("/jobs/\(id)/image", headers: ["Range": "bytes=10-19"])
    #expect(range.status == 206 && Array(range.body) == Array(Fixtures.filedPNG[10..<20]))
    #expect(try await next.send("DELETE", "/jobs/\(id)?purge=true").status == 204)
    _ = try await next.send("DELETE", "/cache")
    try await eventually { try await bucket.keys.isEmpty }
    #expect(try await next.stop() == 0)
  }

  @Test("copies of the previous run are deleted")
  func earlierCopies() async throws {
    let bucket = try await TestBucket(prefix: "kept")
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/filed.png", .ok(Fixtures.filedPNG))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try await RunningService(folder: folder, settings: bucket.settings)
    let id = try await service.submit(url: origin.url("/filed.png"))
    #expect(try await service.finished(id)["phase"] as? String == "success")
    #expect(copies(in: folder) == 1)
    #expect(try await service.stop() == 0)

    let next = try await RunningService(folder: folder, settings: bucket.settings)
    try await eventually { copies(in: folder) == 0 }
    #expect(try await Array(next.get("/jobs/\(id)/image").body) == Fixtures.filedPNG)
    #expect(try await next.stop() == 0)
  }

  /// The number of files whose name is a digest.
  private func copies(in folder: String) -> Int {
    let walk = FileManager.default.enumerator(atPath: folder + "/data/copies")
    var count = 0
    while let path = walk?.nextObject() as? String {
      if path.wholeMatch(of: #/[0-9a-f]{2}\/[0-9a-f]{62}/#) != nil { count += 1 }
    }
    return count
  }

  @Test("the sweep deletes objects without a job and keeps foreign objects")
  func sweeps() async throws {
    let bucket = try await TestBucket(prefix: "kept")
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let first = try await RunningService(folder: folder, settings: bucket.settings)
    #expect(try await first.stop() == 0)
    try await bucket.leaveOrphan([1, 2, 3])
    try await bucket.put("notes/readme.txt", [1, 2, 3])
    let service = try await RunningService(folder: folder, settings: bucket.settings)
    try await eventually { try await bucket.keys == ["notes/readme.txt"] }
    #expect(try await service.stop() == 0)
  }

  @Test("a start with the jobs of another service is refused and deletes nothing")
  func others() async throws {
    let bucket = try await TestBucket(prefix: "kept")
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/filed.png", .ok(Fixtures.filedPNG))
    let folders = [try RunningService.makeFolder(), try RunningService.makeFolder()]
    defer { for folder in folders { try? FileManager.default.removeItem(atPath: folder) } }
    let service = try await RunningService(folder: folders[0], settings: bucket.settings)
    _ = try await service.finished(service.submit(url: origin.url("/filed.png")))
    #expect(try await service.stop() == 0)
    let keys = try await bucket.keys
    #expect(keys.count == 1)

    let database = try TestDatabase(in: .shared)
    for jobs in ["", "IMAGEFETCH_STORAGE_JOBS='\(database.url)'"] {
      let told = try await serve(bucket, in: folders[1], jobs)
      #expect(told.contains("storage.images: the images below this prefix belong to"), "\(told)")
      #expect(told.contains("nothing was deleted") && told.hasSuffix("\nstatus 70\n"), "\(told)")
    }
    let name = try #require(try await bucket.bucket.content(of: BucketOwner.key, atMost: 99))
    try await bucket.bucket.remove(BucketOwner.key)
    for folder in folders {
      let told = try await serve(bucket, in: folder)
      #expect(told.contains("a job store without a name"), "\(told)")
      #expect(told.hasSuffix("\nstatus 70\n"), "\(told)")
    }
    #expect(try await bucket.keys == keys)

    // The operator does what the message says.
    try await bucket.bucket.put(
      BucketOwner.key, OutgoingContent(name), digest: ImageDigest(of: name))
    let next = try await RunningService(folder: folders[0], settings: bucket.settings)
    #expect(try await next.stop() == 0)
    #expect(try await bucket.keys == keys)
  }

  @Test("an unusable bucket is reported at the start with the reason")
  func unusable() async throws {
    let bucket = try await TestBucket(prefix: "kept")
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    func serve(_ more: String) async throws -> String {
      try await self.serve(bucket, in: folder, more)
    }
    let wrong = try await serve("AWS_SECRET_ACCESS_KEY=open-sesame")
    #expect(
      wrong.contains("storage.images: the object store responded with 403 SignatureDoesNotMatch"))
    #expect(wrong.hasSuffix("\nstatus 70\n"), "\(wrong)")
    #expect(!wrong.contains("sesame"), "\(wrong)")
    let none = try await serve("AWS_SECRET_ACCESS_KEY=")
    // A restart would not fix this.
    #expect(none.contains("storage.images: AWS_SECRET_ACCESS_KEY is not set"), "\(none)")
    #expect(none.hasSuffix("\nstatus 1\n"), "\(none)")
    let neither = try await serve("AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY=")
    #expect(
      neither.contains("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"), "\(neither)")
    let gone = try await serve("IMAGEFETCH_STORAGE_IMAGES=s3://no-such-bucket-here")
    #expect(
      gone.contains("storage.images: the object store responded with 404 NoSuchBucket"), "\(gone)")
    for said in [wrong, gone] {
      #expect(!said.contains("internal fault"), "\(said)")
    }
  }

  /// Returns the output of a start that fails.
  private func serve(
    _ bucket: TestBucket, in folder: String, _ more: String = ""
  ) async throws -> String {
    let settings = bucket.settings.map { "\($0.key)='\($0.value)'" }.joined(separator: " ")
    return try await Shell.run(
      """
      \(settings) IMAGEFETCH_SERVER_PORT=0 IMAGEFETCH_STORAGE_PATH='\(folder)/data' \(more) \
        timeout 60 '\(RunningService.executable)' serve 2>&1
      echo "status $?"
      """, in: "/")
  }
}
