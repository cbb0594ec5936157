internal import CIsolation
internal import Glibc
internal import Jobs

/// One decoder, used by one picture at a time.
final class DecoderProcess: @unchecked Sendable {  // whoever has it is alone with it: see DecoderPool
  private var decoder: CIsolationDecoder
  /// What it said that it is held by.
  let layers: IsolatedCodec.Layers
  /// How many it has taken.
  private(set) var pictures = 0
  private var asked = ContinuousClock.now

  var id: pid_t { decoder.process }

  /// Waits until it is behind its limits.
  init(_ decoder: CIsolationDecoder) throws(DecoderUnavailable) {
    self.decoder = decoder
    var layers = CIsolationLayers()
    let size = MemoryLayout<CIsolationLayers>.size
    let count = CIsolation_receive(decoder.channel, &layers, size, 10_000)
    self.layers = IsolatedCodec.Layers(
      hasFilter: layers.has_filter != 0,
      landlock: layers.landlock > 0 ? Int(layers.landlock) : nil)
    guard count == size else {
      throw DecoderUnavailable("the decoder process ended before it had begun")
    }
  }

  deinit { CIsolation_close(&decoder) }

  /// Gives it the time for one picture.
  func beginPicture(seconds: Int) {
    pictures += 1
    CIsolation_allow_seconds(decoder.process, UInt32(clamping: seconds))
  }

  /// Asks for something that is answered.
  /// - Parameter piece: bytes for the memory that both share, ``SharedMemory/room`` at the most.
  func ask(_ request: DecoderRequest, with piece: ArraySlice<UInt8> = []) throws(DecoderLoss) {
    piece.withUnsafeBytes { bytes in
      guard let start = bytes.baseAddress else { return }
      memcpy(decoder.memory, start, min(bytes.count, SharedMemory.room))
    }
    asked = .now
    try say(request)
  }

  /// Says something that isn't answered.
  func say(_ request: DecoderRequest) throws(DecoderLoss) {
    let message = request.message
    guard CIsolation_send(decoder.channel, message, message.count) == 0 else { throw .died }
  }

  /// Waits for the answer.
  /// - Returns: nil after so many milliseconds.
  /// - Throws: ``DecoderLoss/hung`` where that adds up to more than `patience`.
  func answer(within milliseconds: Int, patience: Duration) throws(DecoderLoss) -> [UInt8]? {
    var count = 0
    let message = [UInt8](unsafeUninitializedCapacity: SharedMemory.largestMessage) { room, used in
      count = CIsolation_receive(
        decoder.channel, room.baseAddress, room.count, Int32(clamping: milliseconds))
      used = max(0, min(count, room.count))
    }
    switch count {
    case 0...: return message
    case -Int(EAGAIN):
      if ContinuousClock.now - asked > patience { throw .hung }
      return nil
    case -Int(EMSGSIZE): throw .lied("a message that is too long")
    default: throw .died
    }
  }

  /// A copy of what it put into the memory.
  func results(_ range: Range<Int>) -> [UInt8] {
    let all = UnsafeRawBufferPointer(
      start: decoder.memory + SharedMemory.room, count: SharedMemory.room)
    return Array(all[range.clamped(to: all.indices)])
  }

  /// Takes a file piece by piece.
  func take(
    file: Int, count: Int, patience: Duration
  ) throws(DecoderLoss) -> [UInt8] {
    var bytes: [UInt8] = []
    while bytes.count < count {
      try ask(.take(file: file, offset: bytes.count))
      var message: [UInt8]?
      while message == nil { message = try answer(within: 1_000, patience: patience) }
      var reader = MessageReader(message ?? [])
      let most = min(SharedMemory.room, count - bytes.count)
      guard let piece = try? reader.integer(in: 1...most) else { throw .lied("a file's length") }
      if bytes.isEmpty { bytes.reserveCapacity(count) }
      bytes += results(0..<piece)
    }
    return bytes
  }
}

/// How a picture loses its decoder.
enum DecoderLoss: Error {
  /// It ended, by itself or by the kernel.
  case died
  /// It gave no answer for too long.
  case hung
  /// It said what can't be.
  case lied(String)
}
