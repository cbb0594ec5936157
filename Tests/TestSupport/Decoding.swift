import Glibc
public import Jobs

/// What a decoder said on the way to its end.
public struct Decoding: Equatable, Sendable {
  /// One, unless it failed before.
  public private(set) var headers: [ImageHeader] = []
  /// What it came to.
  public private(set) var result: Result<ImageDescription, CodecError>
  /// Asked of it.
  public private(set) var steps = 0
  /// Those made on the way.
  public private(set) var variants: [[UInt8]?] = []
  /// Of the thread's time.
  public private(set) var longestStep = Duration.zero

  /// Gives the bytes in pieces of that size and steps until the end.
  public init(
    _ bytes: [UInt8], by codec: some ImageCodec, pieces size: Int = .max,
    limits: DecodeLimits = DecodeLimits(), variants wanted: [VariantRequest] = []
  ) {
    let decoder = codec.makeDecoder(limits: limits, variants: wanted)
    result = .failure(.cutShort)
    var (rest, hasEnded) = (bytes[...], false)
    do throws(CodecError) {
      while true {
        steps += 1
        switch try timed(decoder) {
        case .header(let header): headers.append(header)
        case .hasMore: break
        case .finished(let description):
          result = .success(description)
          variants = decoder.variants
          return
        case .needsBytes:
          // Whoever was told that there are none can't ask.
          if hasEnded { return }
          decoder.append(Array(rest.prefix(size)))
          rest = rest.dropFirst(size)
          if rest.isEmpty {
            decoder.end()
            hasEnded = true
          }
        }
      }
    } catch {
      result = .failure(error)
    }
  }

  /// Whether it came to the same end, however long that took.
  public static func == (one: Decoding, other: Decoding) -> Bool {
    one.headers == other.headers && one.result == other.result && one.variants == other.variants
  }

  private mutating func timed(_ decoder: any ImageDecoder) throws(CodecError) -> DecodeStep {
    let start = Self.computed
    defer { longestStep = max(longestStep, Self.computed - start) }
    return try decoder.step()
  }

  /// What this thread has computed so far: what others compute meanwhile is not the decoder's.
  private static var computed: Duration {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
  }

  /// All but the placeholder, which no other library tells.
  public var description: ImageDescription? {
    var description = try? result.get()
    description?.lqip = nil
    return description
  }

  /// The placeholder.
  public var lqip: LQIP? { try? result.get().lqip }

  /// Why there is no image.
  public var error: CodecError? {
    if case .failure(let error) = result { return error }
    return nil
  }

  /// Whether the bytes break their format's rules.
  public var isBroken: Bool {
    if case .broken = error { return true }
    return false
  }
}
