/// The trace and span of a request, as in the header field `traceparent` (W3C Trace Context, section 3.2).
package struct TraceContext: Sendable, Hashable {
  /// The first eight bytes of the trace ID, big-endian.
  package let traceHigh: UInt64
  /// The last eight bytes.
  package let traceLow: UInt64
  /// The ID of the parent span; never 0.
  package let span: UInt64
  /// Whether the caller records the trace.
  package let isSampled: Bool

  /// `span` must not be 0, nor both halves of the trace ID.
  package init(traceHigh: UInt64, traceLow: UInt64, span: UInt64, isSampled: Bool) {
    (self.traceHigh, self.traceLow, self.span, self.isSampled) = (
      traceHigh, traceLow, span, isSampled
    )
  }

  /// Parses the field; nil if it is invalid. Ignores unknown parts of later versions.
  package init?(traceparent text: some StringProtocol) {
    let bytes = Array(text.utf8.prefix(56))
    guard bytes.count >= 55, [2, 35, 52].allSatisfy({ bytes[$0] == UInt8(ascii: "-") }),
      let version = Self.hex(bytes[0..<2]), version != 0xFF,
      bytes.count == 55 || version > 0 && bytes[55] == UInt8(ascii: "-"),
      let high = Self.hex(bytes[3..<19]), let low = Self.hex(bytes[19..<35]), high | low != 0,
      let span = Self.hex(bytes[36..<52]), span != 0, let flags = Self.hex(bytes[53..<55])
    else { return nil }
    self.init(traceHigh: high, traceLow: low, span: span, isSampled: flags & 1 == 1)
  }

  /// The value of the header field.
  package var traceparent: String { "00-\(trace)-\(Self.text(span))-0\(isSampled ? 1 : 0)" }

  /// The trace ID: 32 hexadecimal digits.
  package var trace: String { Self.text(traceHigh) + Self.text(traceLow) }

  /// Returns a span ID as 16 hexadecimal digits.
  package static func text(_ word: UInt64) -> String {
    String(unsafeUninitializedCapacity: 16) { buffer in
      for at in 0..<16 { buffer[at] = hexDigit(word >> UInt64(60 - 4 * at) & 0xF) }
      return 16
    }
  }

  /// Accepts lower case only, as the field requires.
  private static func hex(_ digits: ArraySlice<UInt8>) -> UInt64? {
    var word: UInt64 = 0
    for digit in digits {
      guard !(0x41...0x46).contains(digit), let value = hexValue(digit) else { return nil }
      word = word << 4 | value
    }
    return word
  }
}

extension TraceContext: Codable {
  package init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    guard let context = try TraceContext(traceparent: container.decode(String.self)) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a traceparent")
    }
    self = context
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(traceparent)
  }
}

/// Which jobs are traced, and whether origins receive the trace.
package struct TraceRules: Sendable, Equatable {
  /// The share of jobs to trace, from 0 to 1, among jobs without a trace context of their client.
  var share: Double
  /// Whether requests to origins carry a `traceparent` field.
  package var isPropagated: Bool

  package init(share: Double, isPassedOn: Bool) {
    (self.share, self.isPropagated) = (share, isPassedOn)
  }
}

extension Job {
  /// The job's own span: a child of the client's span, or the root of a trace with the job's ID. Nil if the
  /// job is not traced. The result is the same on every call, also after a restart.
  package func trace(by rules: TraceRules) -> TraceContext? {
    let span = Self.scrambled(id.low, 0)
    guard let parent = submission.trace else {
      let dice = Double(Self.scrambled(id.low, 1) >> 11) * 0x1p-53
      guard dice < rules.share else { return nil }
      return TraceContext(traceHigh: id.high, traceLow: id.low, span: span, isSampled: true)
    }
    guard parent.isSampled else { return nil }
    return TraceContext(
      traceHigh: parent.traceHigh, traceLow: parent.traceLow, span: span, isSampled: true)
  }

  /// The span ID of one of the job's stages.
  package func span(of stage: JobStage.Name) -> UInt64 {
    Self.scrambled(id.low, 2 + UInt64(JobStage.Name.allCases.firstIndex(of: stage) ?? 0))
  }

  /// Maps a word and a number to a different word, never 0 (the finalizer of SplitMix64).
  private static func scrambled(_ word: UInt64, _ number: UInt64) -> UInt64 {
    var word = word &+ (number &+ 1) &* 0x9E37_79B9_7F4A_7C15
    word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
    word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
    return max(1, word ^ word >> 31)
  }
}

/// A stage of a job, as reported to a tracer.
package struct JobStage: Sendable, Equatable {
  /// The stages in order.
  package enum Name: String, Sendable, CaseIterable {
    /// From acceptance to the first start by a worker.
    case queued
    /// From the request to the last byte of the body.
    case fetch
    /// From the first byte of the image to the end of the decode. It overlaps `fetch`.
    case decode
    /// Rendering of the requested variants.
    case variants
    /// Upload to the requested destinations.
    case deliver
    /// Saving the result durably.
    case store
  }

  package var name: Name
  /// Time from the start of the stage to the end of the job.
  package var before: Duration
  /// The duration of the stage.
  package var duration: Duration

  package init(_ name: Name, before: Duration, took: Duration) {
    (self.name, self.before, self.duration) = (name, before, took)
  }
}

/// Receives each finished job, after its end is durable. Called on any thread; must return immediately.
package protocol JobTracer: Sendable {
  /// - Parameter stages: The stages of the last try; empty if there was no try.
  func recordEnd(of job: Job, stages: [JobStage])
}
