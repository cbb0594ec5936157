import Fetch
import Foundation
import Jobs
import Logging
import Synchronization
import TestSupport
import Testing

@testable import S3

/// Tests with a real server that checks signatures.
@Suite("A bucket", .timeLimit(.minutes(15)))
struct S3BucketTests {
  static func read(_ bytes: any ImageBytes) async throws -> [UInt8] {
    var all: [UInt8] = []
    while let piece = try await bytes.next() { all += piece }
    return all
  }

  @Test(
    "a bucket returns a stored object and its size, and nothing after the deletion",
    arguments: [0, 1, 100_000, 3_000_000])
  func roundTrip(count: Int) async throws {
    let bucket = try await TestBucket().bucket
    let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    let key = "ab/c d+e*ü"
    #expect(try await bucket.count(of: key) == nil)
    #expect(try await bucket.get(key, atMost: .max) == nil)
    try await bucket.put(
      key, OutgoingContent(bytes), digest: TestBucket.digest(of: bytes), type: "image/png")
    #expect(try await bucket.count(of: key) == count)
    let got = try #require(try await bucket.get(key, atMost: .max))
    #expect(try await Self.read(got) == bytes)
    try await bucket.remove(key)
    try await bucket.remove(key)
    #expect(try await bucket.count(of: key) == nil)
  }

  @Test("the timeout of a GET grows with the object's size")
  func deadline() async throws {
    let asked = Mutex<[Duration]>([])
    let bucket = S3Bucket(
      S3Bucket.Address(
        endpoint: SourceURL("http://a.example")!, region: "r", bucket: "b", prefix: "",
        isPathStyle: true),
      send: { request throws(FetchError) in
        asked.withLock { $0.append(request.timeout) }
        throw .cancelled
      }, credentials: S3CredentialSource(S3Credentials(accessKey: "A", secretKey: "S")),
      timeout: .seconds(60), tries: 1, now: { Timestamp(milliseconds: 0) },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    for limit in [1_000, 4 << 30, .max] { _ = try? await bucket.get("k", atMost: limit) }
    _ = try? await bucket.put("k", OutgoingContent([1]), digest: TestBucket.digest(of: [1]))
    _ = try? await bucket.remove("k")
    let seconds = [60, 60 + 4_096, 60 + 86_400, 60, 60] as [Int64]
    #expect(asked.withLock { $0 } == seconds.map { .seconds($0) })
  }

  @Test("an object with a wrong digest is refused")
  func wrongDigest() async throws {
    let bucket = try await TestBucket().bucket
    await #expect(throws: S3Error.self) {
      try await bucket.put(
        "a", OutgoingContent([1, 2, 3]), digest: TestBucket.digest(of: [1, 2, 4]))
    }
    #expect(try await bucket.get("a", atMost: .max) == nil)
  }

  @Test("a listing returns the keys below the prefix, page by page")
  func lists() async throws {
    let bucket = try await TestBucket(prefix: "p & q").bucket
    let bytes: [UInt8] = [1, 2, 3]
    let digest = TestBucket.digest(of: bytes)
    let keys = (0..<12).map { "k<\(10 + $0)>&" }
    for key in keys { try await bucket.put(key, OutgoingContent(bytes), digest: digest) }
    var (all, next): ([String], String?) = ([], nil)
    repeat {
      let page = try await bucket.list(after: next, atMost: 5)
      #expect(page.keys.count <= 5)
      all += page.keys
      next = page.next
    } while next != nil
    #expect(all == keys)
  }

  @Test("a request with a wrong secret key is refused and not repeated")
  func wrongSecret() async throws {
    let bucket = try await TestBucket(isMade: false, secretKey: "wrong").bucket
    do {
      _ = try await bucket.count(of: "a")
      Issue.record("it was let in")
    } catch S3Error.refused(let status, _, _) {
      #expect(status == 403)
    }
    do {
      _ = try await bucket.list()
      Issue.record("it was let in")
    } catch S3Error.refused(let status, let code, _) {
      #expect(status == 403 && code == "SignatureDoesNotMatch")
    }
  }
}

/// Tests with a scripted server.
@Suite("A bucket with a faulty server", .timeLimit(.minutes(15)))
struct S3TroubleTests {
  private let origin: ScriptedOrigin

  init() throws { origin = try ScriptedOrigin() }

  private func bucket(tries: Int = 4) throws -> S3Bucket {
    try Self.bucket(at: origin, tries: tries)
  }

  static func bucket(at origin: ScriptedOrigin, tries: Int = 4) throws -> S3Bucket {
    try S3Bucket.forTests(
      at: "http://127.0.0.1:\(origin.port)", named: "bucket",
      S3Credentials(accessKey: "a", secretKey: "b"), timeout: .seconds(2), tries: tries)
  }

  private func error(_ body: () async throws -> Void) async -> S3Error? {
    do { try await body() } catch { return error as? S3Error }
    return nil
  }

  @Test("an error contains the code and message of the server's XML")
  func refused() async throws {
    let text =
      "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>a &lt;b&gt; &#65;</Message></Error>"
    origin.on("/bucket/k", .status(404, body: Array(text.utf8)))
    let bucket = try bucket()
    #expect(
      await error { _ = try await bucket.get("k", atMost: .max) }
        == .refused(status: 404, code: "NoSuchBucket", message: "a <b> A"))
    origin.stop()
  }

  @Test("a 404 that does not come from the store is an error, not a missing object")
  func foreignRefusal() async throws {
    origin.on("/bucket/k", .status(404, body: Array("<html>default backend</html>".utf8)))
    let bucket = try bucket()
    #expect(
      await error { _ = try await bucket.get("k", atMost: .max) }
        == .refused(status: 404, code: "", message: ""))
    origin.stop()
  }

  private let bytes: [UInt8] = Array(repeating: 7, count: 100_000)

  /// A store for the image with these bytes. Its local copies are in memory.
  private func store(
    _ kept: @escaping @Sendable (ImageDigest) -> KeptImage?
  ) async throws -> (store: S3ImageStore, copies: MemoryImageStore, digest: ImageDigest) {
    let copies = MemoryImageStore()
    let store = S3ImageStore(
      try bucket(), copies: copies, spool: copies.spool, maxCopyBytes: 1_000_000, keptImage: kept,
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    let staged = try await copies.spool.stage()
    try staged.write(bytes)
    return (store, copies, staged.finish())
  }

  @Test(
    "a corrupt download is repeated, and the object is not deleted")
  func harmed() async throws {
    let (store, copies, digest) = try await store { KeptImage(ImageName($0), bytes: 100_000) }
    let path = "/bucket/" + S3ImageStore.key(of: ImageName(digest))
    origin.on(path, inOrder: [.ok([1, 2, 3]), .ok(bytes)])
    #expect(try await store.open(digest)?.read(at: 0, count: 200_000) == bytes)
    #expect(origin.requests(to: path).count == 2)
    try await copies.remove(ImageName(digest))
    origin.on(path, inOrder: [.ok([1]), .ok([2]), .ok([3])])
    await #expect(throws: StoreError.self) { try await store.open(digest) }
    origin.on(path, .ok([1]))
    #expect(try await store.open(digest) == nil)
    #expect(origin.requests(to: path).allSatisfy { $0.method == "GET" })
    origin.stop()
  }

  @Test("a download that is longer than the image is aborted")
  func longer() async throws {
    let (store, _, digest) = try await store { KeptImage(ImageName($0), bytes: 100_000) }
    origin.on("/bucket/" + S3ImageStore.key(of: ImageName(digest)), .endless())
    #expect(try await store.open(digest) == nil)
    #expect(origin.requests.count == 2)
    origin.stop()
  }

  @Test("an image that is stored again during a download is found under its new name")
  func renamed() async throws {
    let looks = Mutex(0)
    let (store, _, digest) = try await store { digest in
      let generation = looks.withLock { looks in
        looks += 1
        return looks == 1 ? 0 : Int64.max
      }
      return KeptImage(ImageName(digest, generation: generation), bytes: 100_000)
    }
    let missing = Array("<Error><Code>NoSuchKey</Code></Error>".utf8)
    origin.on("/bucket/" + S3ImageStore.key(of: ImageName(digest)), .status(404, body: missing))
    let name = ImageName(digest, generation: .max)
    origin.on("/bucket/" + S3ImageStore.key(of: name), .ok(bytes))
    #expect(S3ImageStore.name(of: S3ImageStore.key(of: name)) == name)
    #expect(try await store.open(digest)?.count == 100_000)
    origin.stop()
  }

  @Test("an error message is limited to one line of bounded length")
  func longMessage() async throws {
    let words = String(repeating: "a\n", count: 10_000)
    let text = "<Error><Code>Odd</Code><Message>\(words)</Message></Error>"
    origin.on("/bucket/k", .status(400, body: Array(text.utf8)))
    let bucket = try bucket()
    let failure = await error { _ = try await bucket.get("k", atMost: .max) }
    let message = String(repeating: "a ", count: 150)
    #expect(failure == .refused(status: 400, code: "Odd", message: message))
    origin.stop()
  }

  @Test("a temporary error is retried up to the maximum number of tries")
  func triesAgain() async throws {
    origin.on("/bucket/k", .status(503, body: Array("<Error><Code>SlowDown</Code></Error>".utf8)))
    let bucket = try bucket(tries: 3)
    let failure = await error { _ = try await bucket.get("k", atMost: .max) }
    #expect(failure == .refused(status: 503, code: "SlowDown", message: ""))
    #expect(origin.requests.count == 3)
    origin.stop()
  }

  @Test("a server that is down is reported as unreachable")
  func gone() async throws {
    let bucket = try bucket(tries: 1)
    origin.stop()
    guard case .unreachable? = await error({ _ = try await bucket.get("k", atMost: .max) }) else {
      Issue.record("something answered")
      return
    }
  }
}

@Suite("Credentials for an object store")
struct S3CredentialTests {
  @Test("credentials are read from the environment")
  func environment() async throws {
    let source = S3CredentialSource(
      file: nil,
      environment: [
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c",
      ])
    #expect(
      try await source.current() == S3Credentials(accessKey: "a", secretKey: "b", sessionToken: "c")
    )
    await #expect(throws: S3Error.self) {
      try await S3CredentialSource(file: nil, environment: [:]).current()
    }
  }

  @Test("credentials are read from a file, and again after the file has changed")
  func file() async throws {
    let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    defer { try? FileManager.default.removeItem(at: file) }
    let source = S3CredentialSource(file: file.path, environment: [:])
    await #expect(throws: S3Error.self) { try await source.current() }
    func write(_ key: String, at seconds: Double) throws {
      let text = """
        [other]
        aws_access_key_id = x
        [default]
        # aws_access_key_id = y
        aws_access_key_id = \(key)
        aws_secret_access_key=s/+=
        """
      try text.write(to: file, atomically: true, encoding: .utf8)
      try FileManager.default.setAttributes(
        [.modificationDate: Date(timeIntervalSince1970: seconds)], ofItemAtPath: file.path)
    }
    try write("first", at: 1_000)
    #expect(try await source.current() == S3Credentials(accessKey: "first", secretKey: "s/+="))
    try write("second", at: 2_000)
    #expect(try await source.current().accessKey == "second")
  }

  @Test("credentials are read again after the file behind a symbolic link was replaced")
  func link() async throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    defer { try? FileManager.default.removeItem(at: folder) }
    for name in ["first", "second"] {
      let version = folder.appending(path: name)
      try FileManager.default.createDirectory(at: version, withIntermediateDirectories: true)
      try "aws_access_key_id = \(name)\naws_secret_access_key = s".write(
        to: version.appending(path: "keys"), atomically: true, encoding: .utf8)
    }
    let (data, next) = (folder.appending(path: "data"), folder.appending(path: "next"))
    try FileManager.default.createSymbolicLink(
      atPath: data.path, withDestinationPath: "first")
    try FileManager.default.createSymbolicLink(
      atPath: folder.path + "/keys", withDestinationPath: "data/keys")
    let source = S3CredentialSource(file: folder.path + "/keys", environment: [:])
    #expect(try await source.current().accessKey == "first")
    try FileManager.default.createSymbolicLink(
      atPath: next.path, withDestinationPath: "second")
    #expect(rename(next.path, data.path) == 0)
    #expect(try await source.current().accessKey == "second")
  }
}
