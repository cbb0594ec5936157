internal import CIsolation
internal import Glibc
internal import Jobs

/// One decoder, used by one picture at a time.
// Sendable, as whoever has it is alone with it: see DecoderPool.
final class DecoderProcess: @unchecked Sendable {
  private var decoder: CIsolationDecoder
  /// Of the process that it was forked from: another one's decoder may have the same number.
  let generation: Int
  /// What it said that it is held by, once it was met.
  private(set) var layers = IsolatedCodec.Layers(hasFilter: false, landlock: nil)
  /// How many it has taken.
  private(set) var pictures = 0
  /// How often others were let go before it.
  private var setbacks = 0
  /// Requests so far.
  private var number = 0
  /// Since when it owes an answer, and how long it had computed when its first slice was over.
  private var (asked, began) = (ContinuousClock.now, Int64?.none)
  /// Bytes of both halves of the memory that were used since it was last idle.
  private var (given, taken) = (0, 0)
  /// When it was last seen to compute, and how long it had done so then.
  private var (seen, computed) = (ContinuousClock.now, Int64(0))

  /// 0 until it was met.
  var id: pid_t { decoder.process }

  init(_ decoder: CIsolationDecoder, generation: Int) {
    (self.decoder, self.generation) = (decoder, generation)
  }

  /// Waits until it is behind its limits, for a millisecond or two if it was just forked.
  /// - Throws: where it can't be had; it is to be killed then if it has an ``id``.
  func meet() throws(DecoderUnavailable) {
    var found = CIsolationLayers()
    let code = CIsolation_meet(&decoder, &found)
    guard code == 0 else { throw DecoderUnavailable(code) }
    layers = IsolatedCodec.Layers(
      hasFilter: found.has_filter != 0, landlock: found.landlock > 0 ? Int(found.landlock) : nil)
  }

  deinit { CIsolation_close(&decoder) }

  /// Whether others go before it: for good, as only a privileged process can take that back.
  var isPutBack: Bool { setbacks > 0 }

  /// Asks for a picture's first step.
  /// - Parameter time: that it may compute for.
  func begin(
    _ request: DecoderRequest, with piece: ArraySlice<UInt8>, time: Duration
  ) throws(DecoderLoss) {
    told.pointee = 0
    try ask(request, with: piece)
    pictures += 1
    // It was there a moment ago, so the number is its own.
    CIsolation_allow_seconds(decoder.process, UInt32(clamping: time.components.seconds))
  }

  /// Asks for something that is answered.
  /// - Parameter piece: bytes for the memory that both share, ``SharedMemory/room`` at the most.
  func ask(_ request: DecoderRequest, with piece: ArraySlice<UInt8> = []) throws(DecoderLoss) {
    piece.withUnsafeBytes { bytes in
      guard let start = bytes.baseAddress else { return }
      let count = min(bytes.count, SharedMemory.room)
      memcpy(decoder.memory, start, count)
      given = max(given, count)
    }
    number += 1
    asked = .now
    began = nil
    try say(request)
  }

  /// Says something that isn't answered.
  func say(_ request: DecoderRequest) throws(DecoderLoss) {
    let message = request.message(number: number)
    switch CIsolation_send(decoder.channel, message, message.count) {
    case 0: break
    case -EAGAIN: throw .lied("answers to what it has not read")
    case -EPIPE: throw .died
    case let code: throw .cutOff(-code)
    }
  }

  /// Waits for the answer, for a slice.
  /// - Parameters:
  ///   - hasRested: whether there was a pause: then one that was put back is not waited for.
  /// - Returns: what follows its number; nil where it hasn't come.
  /// - Throws: ``DecoderLoss/late`` where it has computed for too long, ``DecoderLoss/hung`` where it has not even done
  ///   that.
  func answer(
    _ configuration: IsolatedCodec.Configuration, hasRested: Bool
  ) throws(DecoderLoss) -> MessageReader? {
    let waits = !(isPutBack && hasRested)
    var count = 0
    let message = [UInt8](unsafeUninitializedCapacity: SharedMemory.largestMessage) { room, used in
      count = CIsolation_receive(decoder.channel, room.baseAddress, room.count, waits)
      used = max(0, min(count, room.count))
    }
    switch count {
    case 0...:
      let signal = CIsolation_last_word(message, count)
      guard signal == 0 else { throw .crashed(signal) }
      var reader = MessageReader(message)
      guard (try? reader.integer(in: number...number)) != nil else {
        throw .lied("an answer to nothing")
      }
      return reader
    case -Int(EAGAIN):
      try waited(configuration)
      return nil
    case -Int(EMSGSIZE): throw .lied("a message of a size that none has")
    case -Int(EPIPE): throw .died
    case let code: throw .cutOff(Int32(-code))
    }
  }

  private func waited(_ configuration: IsolatedCodec.Configuration) throws(DecoderLoss) {
    let now = ContinuousClock.now
    let used = CIsolation_time(decoder.process)
    guard let began else {
      (began, seen, computed) = (used, now, used)
      return
    }
    let (step, most) = (Duration.nanoseconds(used - began), longestStep(configuration))
    guard step <= most else { throw .late }
    // A step is some 10 ms; few pictures have longer ones, and what hangs is not to cost the others a second.
    if setbacks == 0, step > most / 4 || now - asked > .milliseconds(100) { putBack() }
    // By its own time: one that hardly gets any keeps a worker for as long.
    if setbacks == 1, step > .seconds(1) { putBack() }
    guard now - seen > configuration.patience else { return }
    // On a busy machine a decoder that was put back may wait for a core for longer than that. The time is read again: the
    // decoder may have answered, and gone to sleep, since it was read first.
    guard
      used > computed || CIsolation_is_runnable(decoder.process)
        || CIsolation_time(decoder.process) > computed
    else { throw .hung }
    (seen, computed) = (now, used)
  }

  /// As the picture's decoder tells, who is not believed more than a picture may take in all.
  private func longestStep(_ configuration: IsolatedCodec.Configuration) -> Duration {
    min(max(configuration.longestStep, .milliseconds(told.pointee)), configuration.maxTime)
  }

  /// How many milliseconds a step may take, by the decoder's word; 0 where it doesn't know yet.
  private var told: UnsafeMutablePointer<UInt32> {
    UnsafeMutableRawPointer(decoder.memory + SharedMemory.longestStep)
      .assumingMemoryBound(to: UInt32.self)
  }

  /// Has others go before it, and at the second time all others.
  /// - Parameter entirely: all others at once.
  func putBack(entirely: Bool = false) {
    setbacks = entirely ? 2 : setbacks + 1
    CIsolation_put_back(&decoder, setbacks > 1)
  }

  /// How long its answer may be left alone: an eighth of the time that it has taken already. Nil where threads wait for it.
  var rest: Duration? {
    guard isPutBack else { return nil }
    return min(max((ContinuousClock.now - asked) / 8, .milliseconds(1)), .milliseconds(50))
  }

  /// A copy of what it put into the memory.
  func results(_ range: Range<Int>) -> [UInt8] {
    let all = UnsafeRawBufferPointer(
      start: decoder.memory + SharedMemory.room, count: SharedMemory.room)
    let range = range.clamped(to: all.indices)
    taken = max(taken, range.upperBound)
    return Array(all[range])
  }

  /// To be called before it waits for another picture: takes what it was given and what it gave from the memory, and has the
  /// kernel end it where it computes on, in a second or two.
  func becomeIdle() {
    memset(decoder.memory, 0, given)
    memset(decoder.memory + SharedMemory.room, 0, taken)
    (given, taken) = (0, 0)
    CIsolation_allow_seconds(decoder.process, 1)
  }

  /// Since it was asked for what it owes or has just answered.
  var sinceAsked: Duration { ContinuousClock.now - asked }
}

/// How a picture loses its decoder.
enum DecoderLoss: Error {
  /// It ended, by itself or by the kernel.
  case died
  /// It said that a signal is about to end it.
  case crashed(Int32)
  /// It may be there, but can't be spoken to: an `errno` of this process.
  case cutOff(Int32)
  /// It has computed for too long, and gave no answer.
  case late
  /// It gave no answer for too long, and neither computed nor waited for a core.
  case hung
  /// It said what can't be.
  case lied(String)
}
