internal import CCurl

/// One thread's connection to the service: a libcurl handle that reuses its connection between
/// requests. Calls block.
final class ServiceConnection {
  struct Request {
    var method = "GET"
    /// Path and query, relative to the service's address.
    var path: String
    /// Additional header fields as `Name: value`.
    var fields: [String] = []
    var body: [UInt8]?
    var contentType = "application/json"
    /// The timeout for the whole request in seconds. Nil: as long as bytes arrive.
    var seconds: Int? = 30
    /// The descriptor that receives the body of a 200 response, and the most bytes. Other bodies are
    /// kept in memory.
    var sink: (descriptor: Int32, limit: Int)?
    /// Receives each line of a 200 response as it arrives, without its line end. The lines are not
    /// kept.
    var onLine: ((ArraySlice<UInt8>) -> Void)?
    /// Whether the stop flag aborts the request.
    var isStoppable = true
  }

  struct Response {
    var status = 0
    /// The header fields by their lower-case names.
    var fields: [String: String] = [:]
    var body: [UInt8] = []
    /// The number of bytes written to the sink.
    var saved = 0
  }

  /// The reason why there is no complete response.
  enum Failure: Error, Equatable {
    /// The connection failed; with libcurl's message.
    case broken(String)
    /// The stop flag was raised.
    case stopped
    /// Writing to the sink failed with this errno.
    case unwritable(Int32)
    /// The response exceeds the limits for an imagefetch service.
    case oversized
  }

  /// The most bytes of a response kept in memory, or of one line.
  static let maxBody = 1 << 20
  static let maxFieldBytes = 65_536

  private let address: ServiceAddress
  let stop: CancellationFlag
  let easy: UnsafeMutableRawPointer
  private let message: UnsafeMutablePointer<CChar>
  var exchange = RequestState()

  /// The state of one request, for the callbacks.
  struct RequestState {
    var response = Response()
    var sink: (descriptor: Int32, limit: Int)?
    var onLine: ((ArraySlice<UInt8>) -> Void)?
    var isStoppable = true
    var fieldBytes = 0
    var failure: Failure?
  }

  private static let isReady = curl_global_init(Int(CURL_GLOBAL_ALL)) == CURLE_OK

  /// - Returns: Nil if libcurl could not be initialized.
  init?(to address: ServiceAddress, stop: CancellationFlag) {
    guard Self.isReady, let easy = curl_easy_init() else { return nil }
    self.easy = easy
    (self.address, self.stop) = (address, stop)
    message = .allocate(capacity: Int(CURL_ERROR_SIZE))
    message.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
  }

  deinit {
    curl_easy_cleanup(easy)
    message.deallocate()
  }

  /// Sends a request and waits for the complete response.
  func send(_ request: Request) throws(Failure) -> Response {
    if request.isStoppable, stop.isRaised { throw .stopped }
    exchange = RequestState()
    (exchange.sink, exchange.isStoppable) = (request.sink, request.isStoppable)
    exchange.onLine = request.onLine
    // Resets the options but keeps the connection.
    curl_easy_reset(easy)
    message.pointee = 0
    setOptions(request)
    let lines = fields(of: request)
    defer { curl_slist_free_all(lines) }
    CCurl_setList(easy, CURLOPT_HTTPHEADER, lines)
    let code = perform(with: request.body)
    if let failure = exchange.failure { throw failure }
    if code == CURLE_ABORTED_BY_CALLBACK { throw .stopped }
    guard code == CURLE_OK else {
      let words = String(cString: message)
      throw .broken(words.isEmpty ? String(cString: curl_easy_strerror(code)) : words)
    }
    return exchange.response
  }

  private func perform(with body: [UInt8]?) -> CURLcode {
    guard let body else { return curl_easy_perform(easy) }
    return body.withUnsafeBytes { bytes in
      CCurl_setLong(easy, CURLOPT_POSTFIELDSIZE, bytes.count)
      let start = UnsafeMutableRawPointer(mutating: bytes.baseAddress)
      CCurl_setPointer(easy, CURLOPT_POSTFIELDS, start)
      return curl_easy_perform(easy)
    }
  }

  private func setOptions(_ request: Request) {
    CCurl_setPointer(easy, CURLOPT_ERRORBUFFER, message)
    set(CURLOPT_URL, address.base + request.path)
    set(CURLOPT_CUSTOMREQUEST, request.method)
    set(CURLOPT_PROTOCOLS_STR, "http,https")
    // Proxies from the environment are used for a remote service only, never for one on this machine.
    if address.isInProcess || address.isLoopback { set(CURLOPT_PROXY, "") }
    CCurl_setLong(easy, CURLOPT_NOSIGNAL, 1)
    CCurl_setLong(easy, CURLOPT_HTTP09_ALLOWED, 0)
    CCurl_setLong(easy, CURLOPT_CONNECTTIMEOUT_MS, 10_000)
    if let seconds = request.seconds {
      CCurl_setLong(easy, CURLOPT_TIMEOUT_MS, seconds * 1000)
    } else {
      CCurl_setLong(easy, CURLOPT_LOW_SPEED_LIMIT, 1)
      CCurl_setLong(easy, CURLOPT_LOW_SPEED_TIME, 120)
    }
    installCallbacks()
  }

  private func fields(of request: Request) -> UnsafeMutablePointer<curl_slist>? {
    var lines = ["User-Agent: imagefetch-get"] + request.fields
    if let token = address.token { lines.append("Authorization: Bearer \(token)") }
    // Without "Expect:" libcurl would wait for a 100 (Continue) before it sends a longer body.
    if request.body != nil { lines += ["Content-Type: \(request.contentType)", "Expect:"] }
    var list: UnsafeMutablePointer<curl_slist>?
    for line in lines { list = curl_slist_append(list, line) ?? list }
    return list
  }

  private func set(_ option: CURLoption, _ value: String) {
    _ = value.withCString { CCurl_setString(easy, option, $0) }
  }
}

/// libcurl's callbacks during a request. They run on the thread that sends it.
extension ServiceConnection {
  func installCallbacks() {
    let context = Unmanaged.passUnretained(self).toOpaque()
    CCurl_setWriteFunction(easy, CURLOPT_WRITEFUNCTION, bodyCallback)
    CCurl_setPointer(easy, CURLOPT_WRITEDATA, context)
    CCurl_setWriteFunction(easy, CURLOPT_HEADERFUNCTION, headerLineCallback)
    CCurl_setPointer(easy, CURLOPT_HEADERDATA, context)
    // libcurl calls this function at least once a second, even without data.
    CCurl_setLong(easy, CURLOPT_NOPROGRESS, 0)
    CCurl_setProgressFunction(easy, progressCallback)
    CCurl_setPointer(easy, CURLOPT_XFERINFODATA, context)
  }

  fileprivate static func at(_ context: UnsafeMutableRawPointer?) -> ServiceConnection? {
    context.map { Unmanaged<ServiceConnection>.fromOpaque($0).takeUnretainedValue() }
  }

  fileprivate var isBrokenOff: Bool { exchange.isStoppable && stop.isRaised }

  /// Handles bytes of the response's body.
  /// - Returns: Whether to continue the transfer.
  fileprivate func receiveBody(_ bytes: UnsafeRawBufferPointer) -> Bool {
    if exchange.response.status == 200, let onLine = exchange.onLine {
      return receiveLines(bytes, onLine)
    }
    guard exchange.response.status == 200, let sink = exchange.sink else {
      guard exchange.response.body.count + bytes.count <= Self.maxBody else {
        return abort(.oversized)
      }
      exchange.response.body.append(contentsOf: bytes)
      return true
    }
    guard bytes.count <= sink.limit - exchange.response.saved else { return abort(.oversized) }
    exchange.response.saved += bytes.count
    do {
      try Descriptor.write(bytes, to: sink.descriptor)
      return true
    } catch {
      return abort(.unwritable(error.code))
    }
  }

  /// Splits the bytes into lines. An incomplete line is kept in the response's body.
  private func receiveLines(
    _ bytes: UnsafeRawBufferPointer, _ onLine: (ArraySlice<UInt8>) -> Void
  ) -> Bool {
    var rest = bytes[...]
    while let end = rest.firstIndex(of: 0x0A) {
      exchange.response.body.append(contentsOf: rest[..<end])
      guard exchange.response.body.count <= Self.maxBody else { return self.abort(.oversized) }
      onLine(exchange.response.body[...])
      exchange.response.body.removeAll(keepingCapacity: true)
      rest = rest[(end + 1)...]
    }
    guard exchange.response.body.count + rest.count <= Self.maxBody else {
      return abort(.oversized)
    }
    exchange.response.body.append(contentsOf: rest)
    return true
  }

  fileprivate func receive(headerLine line: UnsafeRawBufferPointer) -> Bool {
    exchange.fieldBytes += line.count
    guard exchange.fieldBytes <= Self.maxFieldBytes else { return abort(.oversized) }
    let text = String(decoding: line, as: UTF8.self)
    if text.hasPrefix("HTTP/") {
      // An interim response or a proxy's response may precede the final one.
      exchange.response = Response(
        status: Int(text.split(separator: " ").dropFirst().first ?? "") ?? 0)
    } else if let colon = text.firstIndex(of: ":") {
      let value = text[text.index(after: colon)...]
      exchange.response.fields[text[..<colon].lowercased()] = value.trimmingBlanks
    }
    return true
  }

  private func abort(_ failure: Failure) -> Bool {
    exchange.failure = failure
    return false
  }
}

private func bodyCallback(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let connection = ServiceConnection.at(context) else { return 0 }
  let isTaken = connection.receiveBody(UnsafeRawBufferPointer(start: bytes, count: size * count))
  return isTaken ? size * count : Int(UInt32.max)
}

private func headerLineCallback(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let connection = ServiceConnection.at(context) else { return 0 }
  let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
  return connection.receive(headerLine: line) ? size * count : Int(UInt32.max)
}

private func progressCallback(
  _ context: UnsafeMutableRawPointer?, _: curl_off_t, _: curl_off_t, _: curl_off_t, _: curl_off_t
) -> Int32 {
  ServiceConnection.at(context)?.isBrokenOff == true ? 1 : 0
}

extension Substring {
  /// The text without surrounding blanks and line ends.
  fileprivate var trimmingBlanks: String {
    var rest = unicodeScalars[...]
    let blanks: Set<Unicode.Scalar> = [" ", "\t", "\r", "\n"]
    while let first = rest.first, blanks.contains(first) { rest.removeFirst() }
    while let last = rest.last, blanks.contains(last) { rest.removeLast() }
    return String(rest)
  }
}

/// The address of a service and the token for it.
package struct ServiceAddress: Sendable {
  /// For example `http://127.0.0.1:8080`, without a slash at its end.
  let base: String
  /// Sent as `Authorization: Bearer …`.
  let token: String?
  /// Whether the service runs in this process, for this run alone. Its jobs are then deleted when they are
  /// done, and no proxy is used.
  let isInProcess: Bool

  /// Whether the service is on this machine. A proxy could not reach it there, and must not see the token.
  var isLoopback: Bool {
    let pattern = #/https?://(localhost|127\.[0-9.]+|\[::1\])(:|/|$)/#
    return base.lowercased().prefixMatch(of: pattern) != nil
  }

  /// - Parameters:
  ///   - base: An http or https URL. It may have a path that all routes are below.
  ///   - token: Nil for a service without tokens.
  ///   - isOurs: Whether the service runs in this process.
  /// - Returns: Nil if `base` is not such a URL, or has a query, fragment or user.
  package init?(_ base: String, token: String?, isOurs: Bool = false) {
    let lowercase = base.lowercased()
    guard lowercase.hasPrefix("http://") || lowercase.hasPrefix("https://"),
      base.utf8.allSatisfy({ 0x21...0x7E ~= $0 }), !base.contains(where: { "@?#\\".contains($0) }),
      let slashes = base.firstRange(of: "//"), base.utf8.count <= 2048
    else { return nil }
    let rest = base[slashes.upperBound...]
    guard let first = rest.first, first != "/", first != ":" else { return nil }
    self.base = base.hasSuffix("/") ? String(base.dropLast()) : base
    self.token = token
    self.isInProcess = isOurs
  }

  /// Whether the text can be a bearer token (RFC 6750 section 2.1) of at most 4,096 bytes.
  package static func isToken(_ text: String) -> Bool {
    1...4096 ~= text.utf8.count && text.utf8.allSatisfy { 0x21...0x7E ~= $0 }
  }
}

/// Decides how long to retry while the service cannot be reached. A rule without a clock.
struct Backoff {
  /// The time to retry in total: enough for the restart of a service or a machine.
  static let limit: Duration = .seconds(120)

  private var since: ContinuousClock.Instant?
  private var tries = 0

  /// Records a failed attempt.
  /// - Parameter jitter: 0…1, so that the threads do not all retry at the same time.
  /// - Returns: The wait before the next attempt; nil if the time is over.
  mutating func failed(at now: ContinuousClock.Instant, jitter: Double) -> Duration? {
    let start = since ?? now
    since = start
    guard now - start < Self.limit else { return nil }
    tries += 1
    let longest = min(5, 0.25 * Double(1 << min(tries - 1, 10)))
    return .seconds(longest * (0.5 + jitter / 2))
  }

  /// Resets the rule after a response of the service.
  mutating func answered() { self = Backoff() }
}
