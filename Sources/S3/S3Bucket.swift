internal import Executors
package import Fetch
internal import Foundation
package import Jobs
package import Logging
internal import Synchronization

/// One bucket of an S3-compatible object store, with a key prefix.
///
/// Input: keys and contents. Output: the stored objects' bytes, keys and entity tags, or an
/// ``S3Error``. Callable from any task; hashing of parts runs on a thread of its own.
///
/// Each request is signed (SigV4) and repeated after a temporary error. The SHA-256 of the content
/// is sent in the signed `x-amz-content-sha256` and in `x-amz-checksum-sha256`, so that the store
/// can verify it.
///
/// Read in this order: Signature and S3CredentialSource (signing), this file (requests),
/// S3Bucket+Storing (multipart uploads), S3ImageStore (images and their local copies), BucketOwner
/// (protection against a foreign bucket).
package final class S3Bucket: Sendable {
  /// The bucket's address.
  package struct Address: Sendable {
    /// The URL of the service, without a path.
    var endpoint: SourceURL
    /// The region in the signature.
    var region: String
    /// The bucket's name.
    var bucket: String
    /// The prefix of all keys: empty or ending with a slash.
    var prefix: String
    /// Whether the bucket's name is part of the path; otherwise it is part of the host name.
    var isPathStyle: Bool

    /// Creates an address; a slash is added to a prefix without one.
    package init(
      endpoint: SourceURL, region: String, bucket: String, prefix: String = "", isPathStyle: Bool
    ) {
      self.endpoint = endpoint
      self.region = region
      self.bucket = bucket
      self.prefix = prefix.isEmpty || prefix.hasSuffix("/") ? prefix : prefix + "/"
      self.isPathStyle = isPathStyle
    }
  }

  /// The maximum number of bytes of an error response that are read.
  private static let longestError = 65_536

  private let place: Address
  private let sender: @Sendable (OutgoingRequest) async throws(FetchError) -> FetchedResponse
  private let credentials: S3CredentialSource
  private let timeout: Duration
  private let tries: Int
  private let firstPause: Duration
  /// The region in signatures: from the configuration, until the service names another one.
  private let region: Mutex<String>
  private let now: WallClock
  private let log: Logger
  private let metrics = S3Metrics()
  /// Reads and hashes parts, one at a time for all uploads. Created at the start, because later
  /// there may be no threads left.
  let disk: ThreadPool

  /// - Parameters:
  ///   - sender: must be allowed to connect to the endpoint.
  ///   - timeout: for one try. It is extended by one second for each MiB of the response's limit.
  package convenience init(
    _ place: Address, sender: CurlFetcher, credentials: S3CredentialSource,
    timeout: Duration = .seconds(60), tries: Int = 4, now: @escaping WallClock, log: Logger
  ) {
    self.init(
      place, send: { request throws(FetchError) in try await sender.send(request) },
      credentials: credentials, timeout: timeout, tries: tries, now: now, log: log)
  }

  /// - Parameters:
  ///   - send: sends a request to the endpoint.
  ///   - firstPause: the approximate pause before the second try; each further one is three times
  ///     as long.
  package init(
    _ place: Address,
    send: @escaping @Sendable (OutgoingRequest) async throws(FetchError) -> FetchedResponse,
    credentials: S3CredentialSource, timeout: Duration, tries: Int,
    firstPause: Duration = .milliseconds(100), now: @escaping WallClock, log: Logger
  ) {
    self.place = place
    sender = send
    region = Mutex(place.region)
    self.credentials = credentials
    self.timeout = timeout
    self.tries = tries
    self.firstPause = firstPause
    self.now = now
    self.log = log
    disk = ThreadPool(name: "s3-parts", threads: 1)
  }

  /// Stores an object and replaces an existing one.
  ///
  /// - Parameter isNew: whether to fail if the object exists (`If-None-Match: *`). Some servers
  ///   ignore this.
  /// - Returns: its entity tag, if the store sent one.
  @discardableResult
  package func put(
    _ key: String, _ content: OutgoingContent, digest: ImageDigest, type: String? = nil,
    isNew: Bool = false
  ) async throws(S3Error) -> String? {
    var request = Request(.put, key: key)
    request.content = content
    request.digest = digest.hex
    request.fields = [HeaderField(name: Self.checksum, value: digest.base64)]
    if let type { request.fields.append(HeaderField(name: "Content-Type", value: type)) }
    if isNew { request.fields.append(HeaderField(name: "If-None-Match", value: "*")) }
    return try Self.entityTag(of: try await send(request), with: digest)
  }

  static let checksum = "x-amz-checksum-sha256"

  /// Reads the entity tag. Throws `.checksumMismatch` if the store reports a checksum that differs from
  /// the digest.
  static func entityTag(
    of response: FetchedResponse, with digest: ImageDigest
  ) throws(S3Error) -> String? {
    if let told = response.field(checksum), told != digest.base64 { throw .checksumMismatch }
    return response.field("etag")?.prefix(bytes: 256)
  }

  /// Returns an object's bytes as a stream; `nil` if it does not exist.
  ///
  /// - Parameter limit: the maximum size in bytes, at least 65,536. The stream of a larger object
  ///   ends with `.tooLarge`.
  package func get(
    _ key: String, atMost limit: Int
  ) async throws(S3Error) -> (any ImageBytes)? {
    var request = Request(.get, key: key)
    request.maxBytes = max(limit, Self.longestError)
    return try await sendIfFound(request)?.body
  }

  /// Returns up to `limit` bytes of a small object; `nil` if it does not exist.
  package func content(of key: String, atMost limit: Int) async throws(S3Error) -> [UInt8]? {
    guard let response = try await sendIfFound(Request(.get, key: key)) else { return nil }
    return Array(try await Self.content(of: response, atMost: limit).prefix(limit))
  }

  /// Deletes an object, if it exists.
  package func remove(_ key: String) async throws(S3Error) {
    _ = try await sendIfFound(Request(.delete, key: key))
  }

  /// Lists the keys below the prefix, without the prefix, in order.
  ///
  /// - Parameters:
  ///   - token: the previous page's token; `nil` for the first page.
  ///   - limit: the maximum number of keys; the service caps it at 1,000.
  /// - Returns: the keys and the next page's token, which is `nil` after the last page.
  package func list(
    after token: String? = nil, atMost limit: Int = 1_000
  ) async throws(S3Error) -> (keys: [String], next: String?) {
    var request = Request(.get, key: nil)
    request.query = [("list-type", "2"), ("max-keys", "\(limit)"), ("prefix", place.prefix)]
    if let token { request.query.append(("continuation-token", token)) }
    request.maxBytes = 16 << 20
    let response = try await send(request)
    let page = S3XML(try await Self.content(of: response))
    let keys = page.all("Contents").compactMap { entry -> String? in
      guard let key = entry.first("Key"), key.hasPrefix(place.prefix) else { return nil }
      return String(key.dropFirst(place.prefix.count))
    }
    let isTruncated = page.first("IsTruncated") == "true"
    return (keys, isTruncated ? page.first("NextContinuationToken") : nil)
  }
}

// Requests.
extension S3Bucket {
  package struct Request: Sendable {
    var method: OutgoingRequest.Method
    /// `nil` for a request to the bucket itself.
    var key: String?
    var query: [(String, String)] = []
    var fields: [HeaderField] = []
    var content: OutgoingContent?
    var digest = Request.emptyDigest
    /// The limit for the response's size in bytes.
    var maxBytes = S3Bucket.longestError

    static let emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

    package init(_ method: OutgoingRequest.Method, key: String?) {
      self.method = method
      self.key = key
    }
  }

  /// - Returns: `nil` if the object does not exist.
  func sendIfFound(_ request: Request) async throws(S3Error) -> FetchedResponse? {
    do throws(S3Error) { return try await send(request) } catch {
      guard case .refused(404, let code, _) = error else { throw error }
      // A 404 of a proxy in front of the store does not mean that the object is missing. If it were
      // trusted, the image would be given up.
      let isMissing = request.method == .get ? code == "NoSuchKey" : code != "NoSuchBucket"
      if isMissing { return nil }
      throw error
    }
  }

  /// Sends a request, and repeats it after temporary errors.
  package func send(_ request: Request) async throws(S3Error) -> FetchedResponse {
    try await send(request) { (response) throws(S3Error) in response }
  }

  /// Sends a request until its response can be read, up to `tries` times while the error is a temporary one.
  func send<Value: Sendable>(
    _ request: Request, reading: @Sendable (FetchedResponse) async throws(S3Error) -> Value
  ) async throws(S3Error) -> Value {
    var pause = firstPause
    for attempt in 1... {
      let began = ContinuousClock.now
      do throws(S3Error) {
        let value = try await reading(try await sendOnce(request))
        metrics.ended(request.method.rawValue, after: ContinuousClock.now - began, nil)
        return value
      } catch {
        metrics.ended(request.method.rawValue, after: ContinuousClock.now - began, error)
        guard attempt < tries, error.isRetryable, !Task.isCancelled else { throw error }
        metrics.retried()
        log.info(
          "retrying request to object store",
          metadata: ["method": "\(request.method.rawValue)", "error": "\(error)"])
      }
      try? await Task.sleep(for: pause * Double.random(in: 0.5...1))
      pause = min(pause * 3, .seconds(5))
    }
    throw .unexpected("no attempt was made")
  }

  private func sendOnce(
    _ request: Request, isMoved: Bool = false
  ) async throws(S3Error) -> FetchedResponse {
    // Concurrent requests may learn another region meanwhile.
    let region = region.withLock { $0 }
    let outgoing = try signed(request, for: region, by: try await credentials.current())
    let response: FetchedResponse
    do throws(FetchError) { response = try await sender(outgoing) } catch {
      throw .unreachable(error)
    }
    guard response.status >= 300 else { return response }
    if !isMoved, learnRegion(from: response, signedFor: region) {
      return try await sendOnce(request, isMoved: true)
    }
    let answer = try? await Self.content(of: response, atMost: Self.longestError)
    let xml = S3XML(answer ?? [])
    throw .refused(
      status: response.status, code: Self.logText(xml.first("Code")),
      message: Self.logText(xml.first("Message")))
  }

  /// Records the bucket's region if the signature used another one. Nothing else of a redirect is
  /// used, because it could lead to any host.
  private func learnRegion(from response: FetchedResponse, signedFor known: String) -> Bool {
    guard [301, 307, 400, 403].contains(response.status),
      let told = response.field("x-amz-bucket-region"), 1...64 ~= told.utf8.count,
      told.utf8.allSatisfy({ 0x30...0x39 ~= $0 || 0x61...0x7A ~= $0 | 0x20 || $0 == 0x2D })
    else { return false }
    region.withLock { $0 = told }
    return told != known
  }

  /// Shortens a text to one line of the log. A proxy in front of the store can send any text.
  private static func logText(_ text: String?) -> String {
    String((text ?? "").prefix(bytes: 300).map { $0.isNewline ? " " : $0 })
  }

  private func signed(
    _ request: Request, for region: String, by credentials: S3Credentials
  ) throws(S3Error) -> OutgoingRequest {
    let host =
      place.isPathStyle ? place.endpoint.authority : "\(place.bucket).\(place.endpoint.authority)"
    var path = place.isPathStyle ? "/\(place.bucket)" : ""
    if let key = request.key {
      path += "/" + Signature.encoded(place.prefix + key, keepsSlashes: true)
    }
    if path.isEmpty { path = "/" }
    let query = request.query.map { (Signature.encoded($0), Signature.encoded($1)) }
    let date = Signature.date(now())
    var fields =
      request.fields + [
        HeaderField(name: "x-amz-content-sha256", value: request.digest),
        HeaderField(name: "x-amz-date", value: date),
      ]
    if let token = credentials.sessionToken {
      fields.append(HeaderField(name: "x-amz-security-token", value: token))
    }
    let authorization = Signature(region: region, credentials: credentials).authorization(
      for: Signature.Request(
        method: request.method.rawValue, path: path, query: query.map { (name: $0, value: $1) },
        fields: fields + [HeaderField(name: "Host", value: host)],
        contentDigest: request.digest), at: date)
    fields.append(HeaderField(name: "Authorization", value: authorization))
    let suffix = query.isEmpty ? "" : "?" + query.map { "\($0)=\($1)" }.joined(separator: "&")
    guard let url = SourceURL("\(place.endpoint.scheme)://\(host)\(path)\(suffix)") else {
      throw .unexpected("the key does not fit into a URL")
    }
    // A large object is received in one response: it may take one second for each MiB, and a day at
    // most.
    return OutgoingRequest(
      request.method, url, fields: fields, content: request.content,
      timeout: timeout + .seconds(min(request.maxBytes >> 20, 86_400)), maxBytes: request.maxBytes)
  }

  static func content(
    of response: FetchedResponse, atMost limit: Int = .max
  ) async throws(S3Error) -> [UInt8] {
    var bytes: [UInt8] = []
    do throws(FetchError) {
      while bytes.count < limit, let piece = try await response.body.next() { bytes += piece }
    } catch { throw .unreachable(error) }
    return bytes
  }
}

extension FetchedResponse {
  /// The first value of the field. The name must be in lower case.
  func field(_ name: String) -> String? { headers.first { $0.name.lowercased() == name }?.value }
}

extension ImageDigest {
  /// The digest in base64, as in S3's checksum fields.
  var base64: String { Data(bytes).base64EncodedString() }
}
