internal import Digests
internal import Fetch
internal import Foundation
package import Jobs
internal import Logging
package import S3

/// A bucket of the real S3 server for one test. The name is unique, because concurrent tests create buckets too.
package struct TestBucket: Sendable {
  /// The bucket with its prefix.
  package let bucket: S3Bucket
  /// The bucket's name.
  package let name: String
  private let prefix: String
  private let store: ObjectStore

  /// - Parameters:
  ///   - isMade: whether the bucket is created.
  ///   - secretKey: the key for signatures.
  package init(
    prefix: String = "", isMade: Bool = true, secretKey: String = ObjectStore.secretKey
  ) async throws {
    store = try await ObjectStore.shared()
    (name, self.prefix) = ("b" + UUID().uuidString.lowercased(), prefix)
    bucket = try S3Bucket.forTests(
      at: store.endpoint, named: name, prefix: prefix,
      S3Credentials(accessKey: ObjectStore.accessKey, secretKey: secretKey))
    if isMade { try await bucket.create() }
  }

  /// The server's port.
  package var port: Int { store.port }

  /// Environment variables for a service that stores its images in the bucket.
  package var settings: [String: String] {
    [
      "IMAGEFETCH_STORAGE_IMAGES": "s3://\(name)/\(prefix)",
      "IMAGEFETCH_STORAGE_S3_ENDPOINT": store.endpoint,
      "AWS_ACCESS_KEY_ID": ObjectStore.accessKey,
      "AWS_SECRET_ACCESS_KEY": ObjectStore.secretKey,
    ]
  }

  /// The keys of all objects, except the one that names the owner.
  package var keys: [String] {
    get async throws {
      var (keys, next): ([String], String?) = ([], nil)
      repeat {
        let page = try await bucket.list(after: next)
        keys += page.keys
        next = page.next
      } while next != nil
      return keys.filter { $0 != BucketOwner.key }
    }
  }

  /// Puts bytes under any key.
  package func put(_ key: String, _ bytes: [UInt8]) async throws {
    try await bucket.put(key, OutgoingContent(bytes), digest: Self.digest(of: bytes))
  }

  /// Puts an object with the name of an image that no service knows.
  package func leaveOrphan(_ bytes: [UInt8]) async throws {
    try await put(S3ImageStore.key(of: ImageName(Self.digest(of: bytes))), bytes)
  }

  /// The SHA-256 of bytes.
  package static func digest(of bytes: [UInt8]) -> ImageDigest {
    ImageDigest(bytes: Array(SHA256.hash(data: Data(bytes))))!
  }
}

extension S3Bucket {
  /// A bucket of a server on this machine.
  ///
  /// - Parameter timeout: the timeout of one attempt.
  package static func forTests(
    at endpoint: String, named name: String, prefix: String = "", _ credentials: S3Credentials,
    region: String = "us-east-1", timeout: Duration = .seconds(20), tries: Int = 4
  ) throws -> S3Bucket {
    var configuration = CurlFetcher.Configuration()
    configuration.policy = .everywhere
    return S3Bucket(
      Address(
        endpoint: SourceURL(endpoint)!, region: region, bucket: name, prefix: prefix,
        isPathStyle: true), sender: try CurlFetcher(configuration),
      credentials: S3CredentialSource(credentials), timeout: timeout, tries: tries,
      now: { Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1_000)) },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
  }

  /// The size of an object in bytes; nil if it does not exist.
  package func count(of key: String) async throws(S3Error) -> Int? {
    guard let bytes = try await get(key, atMost: .max) else { return nil }
    var count = 0
    do throws(FetchError) {
      while let piece = try await bytes.next() { count += piece.count }
    } catch { throw .unreachable(error) }
    return count
  }

  /// Creates the bucket.
  package func create() async throws(S3Error) { _ = try await send(Request(.put, key: nil)) }
}

extension TestBucket {
  /// A URL that is signed for one PUT request of an object and valid for an hour (SigV4 in the query).
  package func presignedPut(_ key: String) -> String {
    let date = ISO8601DateFormatter().string(from: Date()).filter { !"-:".contains($0) }
    let day = String(date.prefix(8))
    let scope = "\(day)/us-east-1/s3/aws4_request"
    func encoded(_ text: String) -> String {
      text.utf8.map { byte in
        let isPlain =
          0x30...0x39 ~= byte || 0x41...0x5A ~= byte || 0x61...0x7A ~= byte
          || "-_.~".utf8.contains(byte)
        return isPlain ? String(UnicodeScalar(byte)) : String(format: "%%%02X", byte)
      }.joined()
    }
    let query = [
      ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
      ("X-Amz-Credential", "\(ObjectStore.accessKey)/\(scope)"), ("X-Amz-Date", date),
      ("X-Amz-Expires", "3600"), ("X-Amz-SignedHeaders", "host"),
    ].map { "\($0)=\(encoded($1))" }.joined(separator: "&")
    let path =
      "/\(name)/\(key.split(separator: "/").map { encoded(String($0)) }.joined(separator: "/"))"
    let canonical = "PUT\n\(path)\n\(query)\nhost:127.0.0.1:\(port)\n\nhost\nUNSIGNED-PAYLOAD"
    func hex(_ bytes: some Sequence<UInt8>) -> String {
      bytes.map { String(format: "%02x", $0) }.joined()
    }
    let digest = hex(SHA256.hash(data: canonical.utf8))
    let text = "AWS4-HMAC-SHA256\n\(date)\n\(scope)\n\(digest)"
    let signature = [day, "us-east-1", "s3", "aws4_request", text].reduce(
      Array("AWS4\(ObjectStore.secretKey)".utf8)
    ) { key, step in
      HMACSHA256.authenticationCode(for: step.utf8, key: key)
    }
    return "\(store.endpoint)\(path)?\(query)&X-Amz-Signature=\(hex(signature))"
  }

  /// The configuration of a service that uses the bucket as a destination, with key files in the folder.
  /// - Parameter owners: the names of the tokens that may use it; empty to omit `owners`.
  package func destination(
    _ destination: String, prefix: String, owners: [String] = [], in folder: String
  ) throws -> String {
    try ObjectStore.accessKey.write(
      toFile: folder + "/access", atomically: true, encoding: .utf8)
    try (ObjectStore.secretKey + "\n").write(
      toFile: folder + "/secret", atomically: true, encoding: .utf8)
    let names = owners.isEmpty ? "" : "owners: [\(owners.joined(separator: ", "))], "
    return """
      {\(destination): {\(names)endpoint: "\(store.endpoint)", bucket: \(name), prefix: "\(prefix)", \
      access_key_file: "\(folder)/access", secret_key_file: "\(folder)/secret"}}
      """
  }
}
