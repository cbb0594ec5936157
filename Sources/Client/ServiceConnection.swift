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
