import Fetch
import Foundation
import Jobs
import Logging
import Synchronization
import TestSupport
import Testing

@testable import S3

@Suite("Storing objects in a bucket", .timeLimit(.minutes(15)))
struct StoringTests {
  /// Returns bytes whose blocks of 64 KiB all differ.
  private static func bytes(_ count: Int) -> [UInt8] {
    let block = (0..<65_536).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(count + block.count)
    while bytes.count < count {
      let number = bytes.count / block.count
      bytes += block
      bytes[number * block.count] = UInt8(truncatingIfNeeded: number)
      bytes[number * block.count + 1] = UInt8(truncatingIfNeeded: number >> 8)
    }
    bytes.removeLast(bytes.count - count)
    return bytes
  }

  private static func faulty(_ origin: ScriptedOrigin, tries: Int = 3) throws -> S3Bucket {
    try S3Bucket.forTests(
      at: origin.url(""), named: "b", S3Credentials(accessKey: "AKSECRET", secretKey: "SKSECRET"),
      timeout: .seconds(5), tries: tries)
  }

  private static func store(_ bytes: [UInt8], in bucket: S3Bucket) async throws(S3Error) -> String?
  {
    try await bucket.store(
      "k", .memory(bytes), digest: TestBucket.digest(of: bytes), type: "image/png")
  }

  @Test("a large object is uploaded in parts, and a real server joins them")
  func parts() async throws {
    let bucket = try await TestBucket(prefix: "in").bucket
    let bytes = Self.bytes(S3Bucket.largestWhole + 5_000_000)
    #expect(try await Self.store(bytes, in: bucket) != nil)
    let got = try #require(try await bucket.get("k", atMost: .max))
    #expect(try await S3BucketTests.read(got) == bytes)
  }

  @Test("a large image is uploaded in parts and verified")
  func image() async throws {
    let bucket = try await TestBucket(prefix: "in").bucket
    let copies = MemoryImageStore()
    let store = S3ImageStore(
      bucket, copies: copies, spool: copies.spool, maxCopyBytes: 1, keptImage: { _ in nil },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    let bytes = Self.bytes(S3Bucket.largestWhole + 1)
    let staged = try await copies.spool.stage()
    try staged.write(bytes)
    // The memory spool's names are not SHA-256 digests. The upload is refused, as if the bytes had
    // been corrupted on the disk.
    let other = ImageName(staged.finish(), generation: 5)
    await #expect(throws: StoreError.self) { try await store.put(staged, as: other) }
    #expect(try await bucket.get(S3ImageStore.key(of: other), atMost: .max) == nil)
    let name = ImageName(TestBucket.digest(of: bytes), generation: 5)
    try await store.put(staged, as: name)
    let got = try #require(try await bucket.get(S3ImageStore.key(of: name), atMost: .max))
    #expect(try await S3BucketTests.read(got) == bytes)
  }

  /// Records which threads read the file.
  private final class WatchedFile: StoredFile {
    private let bytes: [UInt8]
    private let threads = Mutex<Set<String>>([])

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var count: Int { bytes.count }
    var readers: Set<String> { threads.withLock { $0 } }

    func read(at offset: Int, count: Int) -> [UInt8] {
      let thread = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/thread-self")
      threads.withLock { _ = $0.insert(thread ?? "unknown") }
      return Array(bytes.dropFirst(offset).prefix(count))
    }
  }

  private final class Once: ImageBytes {
    private let bytes: Mutex<[UInt8]?>
    init(_ bytes: [UInt8]) { self.bytes = Mutex(bytes) }
    func next() async throws(FetchError) -> [UInt8]? { bytes.withLock { $0.take() } }
  }

  /// The response of a server that accepts every request.
  private static func taken(_ request: OutgoingRequest) -> FetchedResponse {
    FetchedResponse(
      url: request.url, status: 200, headers: [HeaderField(name: "ETag", value: "\"p\"")],
      contentLength: nil, body: Once(Array("<R><UploadId>u</UploadId></R>".utf8)),
      timings: TransferTimings())
  }

  @Test("one thread, created at the start, reads the parts of all uploads")
  func threads() async throws {
    let bucket = S3Bucket(
      S3Bucket.Address(
        endpoint: SourceURL("http://a.example")!, region: "r", bucket: "b", isPathStyle: true),
      send: { request throws(FetchError) in Self.taken(request) },
      credentials: S3CredentialSource(S3Credentials(accessKey: "A", secretKey: "S")),
      timeout: .seconds(60), tries: 1, now: { Timestamp(milliseconds: 0) },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    let bytes = Self.bytes(S3Bucket.largestWhole + 1)
    let (file, digest) = (WatchedFile(bytes), TestBucket.digest(of: bytes))
    try await withThrowingTaskGroup(of: Void.self) { group in
      for key in ["a", "b"] {
        group.addTask { _ = try await bucket.store(key, .file(file), digest: digest) }
      }
      try await group.waitForAll()
    }
    #expect(file.readers.count == 1)
  }

  @Test(
    "a refused part is retried alone, and an upload that keeps failing is aborted"
  )
  func brokenPart() async throws {
    let origin = try ScriptedOrigin()
    let bytes = Self.bytes(S3Bucket.largestWhole + 1)
    origin.on("/b/k") { request in
      switch (request.method, request.target.contains("partNumber=2")) {
      case ("POST", _) where request.target.hasSuffix("uploads="):
        .status(200, body: Array("<R><UploadId>u&amp;1</UploadId></R>".utf8))
      case ("PUT", true): .status(503, body: Array("<Error><Code>SlowDown</Code></Error>".utf8))
      case ("PUT", false): .status(200, headers: [("ETag", "\"p\"")])
      default: .status(204)
      }
    }
    await #expect(throws: S3Error.refused(status: 503, code: "SlowDown", message: "")) {
      try await Self.store(bytes, in: Self.faulty(origin))
    }
    let requests = origin.requests
    #expect(requests.count { $0.target.contains("partNumber=1") } == 1)
    #expect(requests.count { $0.target.contains("partNumber=2") } == 3)
    #expect(requests.last?.method == "DELETE" && requests.last?.target == "/b/k?uploadId=u%261")
  }

  @Test("an upload fails if the response to its completion contains an error")
  func lateError() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/b/k") { request in
      switch request.method {
      case "POST" where request.target.hasSuffix("uploads="):
        .status(200, body: Array("<R><UploadId>u</UploadId></R>".utf8))
      case "POST": .status(200, body: Array("<Error><Code>AccessDenied</Code></Error>".utf8))
      case "PUT": .status(200, headers: [("ETag", "\"p\"")])
      default: .status(204)
      }
    }
    await #expect(throws: S3Error.refused(status: 200, code: "AccessDenied", message: "")) {
      try await Self.store(Self.bytes(S3Bucket.largestWhole + 1), in: Self.faulty(origin))
    }
    #expect(origin.requests.count { $0.method == "POST" } == 2)
    #expect(origin.requests.last?.method == "DELETE")
  }

  @Test(
    "a completion that fails with a temporary error is repeated",
    arguments: ["InternalError", "SlowDown"])
  func lateTemporaryError(code: String) async throws {
    let origin = try ScriptedOrigin()
    let failed = ScriptedReply.status(
      200, body: Array("<Error><Code>\(code)</Code></Error>".utf8))
    let part = ScriptedReply.status(200, headers: [("ETag", "\"p\"")])
    let begun = ScriptedReply.status(200, body: Array("<R><UploadId>u</UploadId></R>".utf8))
    let done = ScriptedReply.status(200, body: Array("<R><ETag>\"done\"</ETag></R>".utf8))
    origin.on("/b/k", inOrder: [begun, part, part, part, part, part, failed, failed, done])
    let tag = try await Self.store(
      Self.bytes(S3Bucket.largestWhole + 1), in: Self.faulty(origin))
    #expect(tag == "\"done\"")
    let put = [String](repeating: "PUT", count: 5)
    #expect(origin.requests.map(\.method) == ["POST"] + put + ["POST", "POST", "POST"])
  }

  @Test("requests use the region that the server names, and do not follow redirects")
  func regions() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/b/k") { request in
      request.header("authorization")?.contains("/eu-west-3/s3/") == true
        ? .status(200, headers: [("ETag", "\"x\"")])
        : .status(
          301,
          headers: [("x-amz-bucket-region", "eu-west-3"), ("Location", origin.url("/elsewhere"))])
    }
    let bucket = try Self.faulty(origin)
    for _ in 0..<2 { #expect(try await Self.store([1, 2], in: bucket) == "\"x\"") }
    #expect(origin.requests(to: "/b/k").count == 3 && origin.requests(to: "/elsewhere").isEmpty)
    origin.on("/b/k", .redirect(to: origin.url("/elsewhere"), status: 307))
    await #expect(throws: S3Error.refused(status: 307, code: "", message: "")) {
      try await Self.store([1, 2], in: bucket)
    }
    #expect(origin.requests(to: "/elsewhere").isEmpty)
  }

  @Test("concurrent requests each learn the bucket's region")
  func regionsAtOnce() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/b/k") { request in
      request.header("authorization")?.contains("/eu-west-9/s3/") == true
        ? .status(200, headers: [("ETag", "\"x\"")])
        : .status(400, headers: [("x-amz-bucket-region", "eu-west-9")])
    }
    let bucket = try Self.faulty(origin)
    try await withThrowingTaskGroup(of: String?.self) { group in
      for _ in 0..<8 { group.addTask { try await Self.store([1, 2], in: bucket) } }
      for try await tag in group { #expect(tag == "\"x\"") }
    }
  }

  @Test("an upload fails if the server reports another checksum")
  func otherBytes() async throws {
    let origin = try ScriptedOrigin()
    let other = Data(TestBucket.digest(of: [9]).bytes).base64EncodedString()
    origin.on("/b/k", .status(200, headers: [("x-amz-checksum-sha256", other)]))
    await #expect(throws: S3Error.checksumMismatch) {
      try await Self.store([1], in: Self.faulty(origin))
    }
    #expect(origin.requests.count == 1)
    let sent = origin.requests[0]
    #expect(
      sent.header("x-amz-checksum-sha256")
        == Data(TestBucket.digest(of: [1]).bytes).base64EncodedString())
    #expect(!sent.headers.contains { $0.value.contains("SKSECRET") })
  }

  @Test("keys in two files are read again after one of them has changed")
  func files() async throws {
    let folder = NSTemporaryDirectory() + UUID().uuidString
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let source = S3CredentialSource(accessKeyFile: folder + "/a", secretKeyFile: folder + "/s")
    await #expect(throws: S3Error.self) { try await source.current() }
    try "AK\n".write(toFile: folder + "/a", atomically: true, encoding: .utf8)
    try " first \n".write(toFile: folder + "/s", atomically: true, encoding: .utf8)
    #expect(try await source.current() == S3Credentials(accessKey: "AK", secretKey: "first"))
    try "second-one".write(toFile: folder + "/s", atomically: true, encoding: .utf8)
    #expect(try await source.current() == S3Credentials(accessKey: "AK", secretKey: "second-one"))
    try "\n".write(toFile: folder + "/a", atomically: true, encoding: .utf8)
    await #expect(throws: S3Error.self) { try await source.current() }
  }
}
