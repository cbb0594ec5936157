import Crypto
import Fetch
import Foundation
import Jobs
import Logging
import TestSupport
import Testing

@testable import S3

/// Against a real server that checks signatures.
@Suite("A bucket", .timeLimit(.minutes(5)))
struct S3BucketTests {
  static func sender(stallTimeout: Duration = .seconds(15)) throws -> CurlFetcher {
    var configuration = CurlFetcher.Configuration()
    configuration.policy = .everywhere
    configuration.stallTimeout = stallTimeout
    return try CurlFetcher(configuration)
  }

  /// A bucket that nobody else has: one that others make at the same time is not there at once.
  static func bucket(
    at endpoint: String, prefix: String = "", secretKey: String = ObjectStore.secretKey,
    tries: Int = 4
  ) throws -> S3Bucket {
    let url = try #require(SourceURL(endpoint))
    return S3Bucket(
      S3Bucket.Place(
        endpoint: url, region: "us-east-1", bucket: "b" + UUID().uuidString.lowercased(),
        prefix: prefix, isPathStyle: true), sender: try sender(),
      credentials: S3CredentialSource(
        S3Credentials(accessKey: ObjectStore.accessKey, secretKey: secretKey)),
      timeout: .seconds(20), tries: tries,
      now: { Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1_000)) },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
  }

  static func digest(of bytes: [UInt8]) throws -> ImageDigest {
    try #require(ImageDigest(bytes: Data(SHA256.hash(data: Data(bytes)))))
  }

  static func read(_ bytes: any ImageBytes) async throws -> [UInt8] {
    var all: [UInt8] = []
    while let piece = try await bytes.next() { all += piece }
    return all
  }

  @Test(
    "keeps what is put, tells how much it is, and forgets what is removed",
    arguments: [0, 1, 100_000, 3_000_000])
  func roundTrip(count: Int) async throws {
    let bucket = try Self.bucket(at: try await ObjectStore.shared().endpoint)
    try await bucket.create()
    let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    let key = "ab/c d+e*ü"
    #expect(try await bucket.count(of: key) == nil)
    #expect(try await bucket.get(key) == nil)
    try await bucket.put(
      key, OutgoingContent(bytes), digest: Self.digest(of: bytes), type: "image/png")
    #expect(try await bucket.count(of: key) == count)
    let got = try #require(try await bucket.get(key))
    #expect(got.count == count)
    #expect(try await Self.read(got.bytes) == bytes)
    try await bucket.remove(key)
    try await bucket.remove(key)
    #expect(try await bucket.count(of: key) == nil)
  }

  @Test("bytes that aren't those of the digest are refused")
  func wrongDigest() async throws {
    let bucket = try Self.bucket(at: try await ObjectStore.shared().endpoint)
    try await bucket.create()
    await #expect(throws: S3Error.self) {
      try await bucket.put(
        "a", OutgoingContent([1, 2, 3]), digest: Self.digest(of: [1, 2, 4]))
    }
    #expect(try await bucket.get("a") == nil)
  }

  @Test("lists what is below its prefix, page by page")
  func lists() async throws {
    let bucket = try Self.bucket(at: try await ObjectStore.shared().endpoint, prefix: "p & q")
    try await bucket.create()
    let bytes: [UInt8] = [1, 2, 3]
    let digest = try Self.digest(of: bytes)
    let keys = (0..<12).map { "k<\(10 + $0)>&" }
    for key in keys { try await bucket.put(key, OutgoingContent(bytes), digest: digest) }
    var (all, next): ([S3Bucket.Object], String?) = ([], nil)
    repeat {
      let page = try await bucket.list(after: next, atMost: 5)
      #expect(page.objects.count <= 5)
      all += page.objects
      next = page.next
    } while next != nil
    #expect(all == keys.map { S3Bucket.Object(key: $0, count: 3) })
  }

  @Test("a wrong secret is told as such, and not tried again")
  func wrongSecret() async throws {
    let bucket = try Self.bucket(at: try await ObjectStore.shared().endpoint, secretKey: "wrong")
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

/// Against an origin that does as it is told.
@Suite("A bucket whose server has troubles", .timeLimit(.minutes(5)))
struct S3TroubleTests {
  private let origin: ScriptedOrigin

  init() throws { origin = try ScriptedOrigin() }

  private func bucket(tries: Int = 4) throws -> S3Bucket {
    try Self.bucket(at: origin, tries: tries)
  }

  static func bucket(at origin: ScriptedOrigin, tries: Int = 4) throws -> S3Bucket {
    let url = try #require(SourceURL(origin.url("/")))
    return S3Bucket(
      S3Bucket.Place(
        endpoint: url, region: "eu-west-1", bucket: "bucket", isPathStyle: true),
      sender: try S3BucketTests.sender(),
      credentials: S3CredentialSource(S3Credentials(accessKey: "a", secretKey: "b")),
      timeout: .seconds(2), tries: tries, now: { Timestamp(milliseconds: 0) },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
  }

  private func error(_ body: () async throws -> Void) async -> S3Error? {
    do { try await body() } catch { return error as? S3Error }
    return nil
  }

  @Test("says of an error what it says")
  func refused() async throws {
    let text =
      "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>a &lt;b&gt; &#65;</Message></Error>"
    origin.on("/bucket/k", .status(404, body: Array(text.utf8)))
    let bucket = try bucket()
    #expect(
      await error { _ = try await bucket.get("k") }
        == .refused(status: 404, code: "NoSuchBucket", message: "a <b> A"))
    origin.stop()
  }

  @Test("a 404 that is not the store's own is no image that is gone")
  func foreignRefusal() async throws {
    origin.on("/bucket/k", .status(404, body: Array("<html>default backend</html>".utf8)))
    let bucket = try bucket()
    #expect(
      await error { _ = try await bucket.get("k") } == .refused(status: 404, code: "", message: ""))
    origin.stop()
  }

  @Test("what is harmed on its way is asked for again, and removed only where it stays the same")
  func harmed() async throws {
    let bytes: [UInt8] = Array(repeating: 7, count: 1_000)
    let copies = MemoryImageStore()
    let staged = try await copies.spool.stage()
    try staged.write(bytes)
    let digest = staged.finish()
    let path = "/bucket/" + S3ImageStore.key(of: digest)
    let store = S3ImageStore(
      try bucket(), copies: copies, spool: copies.spool, maxCopyBytes: 10_000,
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    origin.on(path, inOrder: [.ok([1, 2, 3]), .ok(bytes)])
    #expect(try await store.open(digest)?.read(at: 0, count: 2_000) == bytes)
    #expect(origin.requests(to: path).map(\.method) == ["GET", "GET"])
    try await copies.remove(digest)
    origin.on(path, inOrder: [.ok([1]), .ok([2]), .ok([3])])
    await #expect(throws: StoreError.self) { try await store.open(digest) }
    #expect(!origin.requests(to: path).contains { $0.method == "DELETE" })
    origin.on(path, inOrder: [.ok([1]), .ok([1]), .status(204)])
    #expect(try await store.open(digest) == nil)
    #expect(origin.requests(to: path).last?.method == "DELETE")
    origin.stop()
  }

  @Test("tries again what may pass, so often and no more")
  func triesAgain() async throws {
    origin.on("/bucket/k", .status(503, body: Array("<Error><Code>SlowDown</Code></Error>".utf8)))
    let bucket = try bucket(tries: 3)
    let told = await error { _ = try await bucket.get("k") }
    #expect(told == .refused(status: 503, code: "SlowDown", message: ""))
    #expect(origin.requests.count == 3)
    origin.stop()
  }

  @Test("one that is gone is told as such")
  func gone() async throws {
    let bucket = try bucket(tries: 1)
    origin.stop()
    guard case .unreachable? = await error({ _ = try await bucket.get("k") }) else {
      Issue.record("something answered")
      return
    }
  }
}

@Suite("Credentials of an object store")
struct S3CredentialTests {
  @Test("come from the environment")
  func environment() throws {
    let source = S3CredentialSource(
      file: nil,
      environment: [
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c",
      ])
    #expect(
      try source.current() == S3Credentials(accessKey: "a", secretKey: "b", sessionToken: "c"))
    #expect(throws: S3Error.self) { try S3CredentialSource(file: nil, environment: [:]).current() }
  }

  @Test("come from a file, which is read again once it has changed")
  func file() throws {
    let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    defer { try? FileManager.default.removeItem(at: file) }
    let source = S3CredentialSource(file: file.path, environment: [:])
    #expect(throws: S3Error.self) { try source.current() }
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
    #expect(try source.current() == S3Credentials(accessKey: "first", secretKey: "s/+="))
    try write("second", at: 2_000)
    #expect(try source.current().accessKey == "second")
  }

  @Test("are read again where the file behind a link is exchanged, as in a mounted secret")
  func link() throws {
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
    #expect(try source.current().accessKey == "first")
    try FileManager.default.createSymbolicLink(
      atPath: next.path, withDestinationPath: "second")
    #expect(rename(next.path, data.path) == 0)
    #expect(try source.current().accessKey == "second")
  }
}
