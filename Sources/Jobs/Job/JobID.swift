internal import Synchronization

/// The ID of a job or batch: a UUID of version 7 (RFC 9562 section 5.7). IDs sort by creation time.
package struct JobID: Hashable, Sendable, Comparable {
  /// The first eight bytes, big-endian: 48 bits of Unix milliseconds, the version, 12 random bits.
  package let high: UInt64
  /// The last eight bytes, big-endian: the variant and 62 random bits.
  package let low: UInt64

  /// A new ID with the time `moment`.
  package init(at moment: Timestamp, using random: inout some RandomNumberGenerator) {
    let milliseconds = UInt64(max(0, moment.milliseconds)) & 0xFFFF_FFFF_FFFF
    high = milliseconds << 16 | 0x7000 | (random.next() & 0x0FFF)
    low = 0x8000_0000_0000_0000 | (random.next() & 0x3FFF_FFFF_FFFF_FFFF)
  }

  /// A new ID with the time `moment` and random bits from the system.
  package init(at moment: Timestamp) {
    var random = SystemRandomNumberGenerator()
    self.init(at: moment, using: &random)
  }

  /// The ID with these sixteen bytes, as stores save it.
  package init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  /// Parses the text form of RFC 9562 section 4, in either case; nil for anything else.
  package init?(_ text: some StringProtocol) { self.init(utf8: Substring(text).utf8) }

  /// Parses the UTF-8 text. The function is not generic, because generic code is slower when it parses
  /// request paths.
  package init?(utf8 bytes: Substring.UTF8View) {
    guard bytes.count == 36 else { return nil }
    var words: (UInt64, UInt64) = (0, 0)
    var digits = 0
    for (index, byte) in bytes.enumerated() {
      if index == 8 || index == 13 || index == 18 || index == 23 {
        guard byte == UInt8(ascii: "-") else { return nil }
        continue
      }
      guard let value = hexValue(byte) else { return nil }
      if digits < 16 { words.0 = words.0 << 4 | value } else { words.1 = words.1 << 4 | value }
      digits += 1
    }
    self.init(high: words.0, low: words.1)
  }

  /// The time of creation, in milliseconds.
  var moment: Timestamp { Timestamp(milliseconds: Int64(high >> 16)) }

  package static func < (a: JobID, b: JobID) -> Bool {
    a.high == b.high ? a.low < b.low : a.high < b.high
  }
}

extension JobID: CustomStringConvertible {
  /// The text form: lower case, 8-4-4-4-12.
  package var description: String {
    String(unsafeUninitializedCapacity: 36) { buffer in
      var at = 0
      for digit in 0..<32 {
        if digit == 8 || digit == 12 || digit == 16 || digit == 20 {
          buffer[at] = UInt8(ascii: "-")
          at += 1
        }
        let word = digit < 16 ? high : low
        buffer[at] = hexDigit(word >> UInt64(60 - 4 * (digit % 16)) & 0xF)
        at += 1
      }
      return at
    }
  }
}

func hexValue(_ byte: UInt8) -> UInt64? {
  switch byte {
  case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt64(byte - UInt8(ascii: "0"))
  case UInt8(ascii: "a")...UInt8(ascii: "f"): UInt64(byte - UInt8(ascii: "a") + 10)
  case UInt8(ascii: "A")...UInt8(ascii: "F"): UInt64(byte - UInt8(ascii: "A") + 10)
  default: nil
  }
}

func hexDigit(_ value: UInt64) -> UInt8 {
  value < 10 ? UInt8(ascii: "0") + UInt8(value) : UInt8(ascii: "a") + UInt8(value - 10)
}

extension JobID: Codable {
  package init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    guard let id = try JobID(container.decode(String.self)) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a job id")
    }
    self = id
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(description)
  }
}

/// Creates IDs that increase even within one millisecond. The 12 bits after the version are a counter (RFC
/// 9562 section 6.2, method 1). Therefore the jobs of a batch sort in the order in which they were submitted.
package final class JobIDSequence: Sendable {
  private struct Last {
    var milliseconds: Int64 = 0
    var counter: UInt64 = 0
  }
  private let last = Mutex(Last())

  package init() {}

  package func next(at moment: Timestamp) -> JobID {
    let (milliseconds, counter) = last.withLock { last in
      if moment.milliseconds > last.milliseconds {
        // Starts at a random value in the lower half: IDs of several instances interleave, and the counter
        // has room to grow.
        last = Last(milliseconds: moment.milliseconds, counter: .random(in: 0..<0x800))
      } else if last.counter < 0xFFF {
        last.counter += 1
      } else {
        last = Last(milliseconds: last.milliseconds + 1, counter: 0)
      }
      return (last.milliseconds, last.counter)
    }
    let random = JobID(at: Timestamp(milliseconds: milliseconds))
    return JobID(high: random.high & ~0xFFF | counter, low: random.low)
  }
}
