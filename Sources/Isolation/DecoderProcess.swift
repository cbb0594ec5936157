internal import CIsolation
internal import Glibc
internal import Jobs

/// One decoder process, used for one image at a time.
// Sendable, because only its current user accesses it; see DecoderPool.
final class DecoderProcess: @unchecked Sendable {
  private var decoder: CIsolationDecoder
  /// Identifies the process that forked it. A decoder of another one may have the same process ID.
  let generation: Int
  /// The sandbox layers, as the process reported them to ``waitUntilReady()``.
  private(set) var layers = IsolatedCodec.SandboxLayers(hasFilter: false, landlock: nil)
  /// How many images it has begun.
  private(set) var imageCount = 0
  /// How often its priority was lowered.
  private var priorityLevel = 0
  /// The number of requests so far.
  private var number = 0
  /// When the pending request was sent, and the CPU time at the end of its first slice.
  private var (asked, began) = (ContinuousClock.now, Int64?.none)
  /// How many bytes of both halves of the memory were used since it was last idle.
  private var (given, taken) = (0, 0)
  /// When it was last seen to compute, and its CPU time then.
  private var (seen, computed) = (ContinuousClock.now, Int64(0))

  /// The process ID; 0 until ``waitUntilReady()`` has returned.
  var id: pid_t { decoder.process }

  init(_ decoder: CIsolationDecoder, generation: Int) {
    (self.decoder, self.generation) = (decoder, generation)
  }

  /// Waits until the process has entered its sandbox. Takes a millisecond or two after a fork.
  /// - Throws: if the process is not available. Then kill it if it has an ``id``.
  func waitUntilReady() throws(DecoderUnavailable) {
    var found = CIsolationLayers()
    let code = CIsolation_wait_until_ready(&decoder, &found)
    guard code == 0 else { throw DecoderUnavailable(code) }
    layers = IsolatedCodec.SandboxLayers(
      hasFilter: found.has_filter != 0, landlock: found.landlock > 0 ? Int(found.landlock) : nil)
  }

  deinit { CIsolation_close(&decoder) }

  /// Whether its priority was lowered. This is permanent, because only a privileged process can raise it again.
  var hasLowPriority: Bool { priorityLevel > 0 }

  /// Requests the first step of an image.
  /// - Parameter time: the CPU time that the image may take.
  func begin(
    _ request: DecoderRequest, with piece: ArraySlice<UInt8>, time: Duration
  ) throws(DecoderLoss) {
    reportedLongestStep.pointee = 0
    try sendRequest(request, with: piece)
    imageCount += 1
    // The process existed a moment ago, so the ID still belongs to it.
    CIsolation_allow_seconds(decoder.process, UInt32(clamping: time.components.seconds))
  }

  /// Sends a request that has a reply.
  /// - Parameter piece: bytes for the shared memory, at most ``SharedMemory/halfSize``.
  func sendRequest(_ request: DecoderRequest, with piece: ArraySlice<UInt8> = [])
    throws(DecoderLoss)
  {
    piece.withUnsafeBytes { bytes in
      guard let start = bytes.baseAddress else { return }
      let count = min(bytes.count, SharedMemory.halfSize)
      memcpy(decoder.memory, start, count)
      given = max(given, count)
    }
    number += 1
    asked = .now
    began = nil
    try send(request)
  }

  /// Sends a request that has no reply.
  func send(_ request: DecoderRequest) throws(DecoderLoss) {
    let message = request.message(number: number)
    switch CIsolation_send(decoder.channel, message, message.count) {
    case 0: break
    case -EAGAIN: throw .protocolViolation("replies without reading requests")
    case -EPIPE: throw .died
    case let code: throw .cutOff(-code)
    }
  }

  /// Waits for the reply, at most for a slice.
  /// - Parameters:
  ///   - hasPaused: whether there was a pause. If so, this does not wait for a decoder with lowered priority.
  /// - Returns: the content after the reply's number; nil if it has not arrived.
  /// - Throws: ``DecoderLoss/timedOut`` if the decoder has computed for too long, ``DecoderLoss/hung`` if it has neither
  ///   computed nor waited for a core.
  func receiveReply(
    _ configuration: IsolatedCodec.Configuration, hasPaused: Bool
  ) throws(DecoderLoss) -> MessageReader? {
    let waits = !(hasLowPriority && hasPaused)
    var count = 0
    let message = [UInt8](unsafeUninitializedCapacity: SharedMemory.largestMessage) { room, used in
      count = CIsolation_receive(decoder.channel, room.baseAddress, room.count, waits)
      used = max(0, min(count, room.count))
    }
    switch count {
    case 0...:
      let signal = CIsolation_crash_signal(message, count)
      guard signal == 0 else { throw .crashed(signal) }
      var reader = MessageReader(message)
      guard (try? reader.integer(in: number...number)) != nil else {
        throw .protocolViolation("a reply without a request")
      }
      return reader
    case -Int(EAGAIN):
      try checkProgress(configuration)
      return nil
    case -Int(EMSGSIZE): throw .protocolViolation("a message of invalid size")
    case -Int(EPIPE): throw .died
    case let code: throw .cutOff(Int32(-code))
    }
  }

  private func checkProgress(_ configuration: IsolatedCodec.Configuration) throws(DecoderLoss) {
    let now = ContinuousClock.now
    let used = CIsolation_time(decoder.process)
    guard let began else {
      (began, seen, computed) = (used, now, used)
      return
    }
    let (step, most) = (Duration.nanoseconds(used - began), longestStep(configuration))
    guard step <= most else { throw .timedOut }
    // A step takes about 10 ms, and few images have longer ones. Lowers the priority early, so that a stuck decoder
    // does not cost others a whole second.
    if priorityLevel == 0, step > most / 4 || now - asked > .milliseconds(100) { lowerPriority() }
    // Uses the decoder's own CPU time: one that gets hardly any CPU time blocks a worker for as long.
    if priorityLevel == 1, step > .seconds(1) { lowerPriority() }
    guard now - seen > configuration.replyTimeout else { return }
    // On a busy machine, a decoder with lowered priority may wait longer for a core. The CPU time is read again,
    // because the decoder may have replied and gone to sleep after the first read.
    guard
      used > computed || CIsolation_is_runnable(decoder.process)
        || CIsolation_time(decoder.process) > computed
    else { throw .hung }
    (seen, computed) = (now, used)
  }

  /// The limit that the decoder reports, but never more than an image may take in total.
  private func longestStep(_ configuration: IsolatedCodec.Configuration) -> Duration {
    min(
      max(configuration.longestStep, .milliseconds(reportedLongestStep.pointee)),
      configuration.maxTime)
  }

  /// How many milliseconds a step may take, as the decoder reports. 0 while it is not known.
  private var reportedLongestStep: UnsafeMutablePointer<UInt32> {
    UnsafeMutableRawPointer(decoder.memory + SharedMemory.longestStep)
      .assumingMemoryBound(to: UInt32.self)
  }

  /// Lowers its priority below that of other processes. The second time, it gets only idle CPU time.
  /// - Parameter entirely: whether it gets only idle CPU time at once.
  func lowerPriority(entirely: Bool = false) {
    priorityLevel = entirely ? 2 : priorityLevel + 1
    CIsolation_lower_priority(&decoder, priorityLevel > 1)
  }

  /// How long to pause before checking for its reply: an eighth of the time that it has taken so far. Nil if its
  /// priority is normal; then threads wait for it.
  var suggestedPause: Duration? {
    guard hasLowPriority else { return nil }
    return min(max((ContinuousClock.now - asked) / 8, .milliseconds(1)), .milliseconds(50))
  }

  /// A copy of the bytes that it wrote to the memory.
  func results(_ range: Range<Int>) -> [UInt8] {
    let all = UnsafeRawBufferPointer(
      start: decoder.memory + SharedMemory.halfSize, count: SharedMemory.halfSize)
    let range = range.clamped(to: all.indices)
    taken = max(taken, range.upperBound)
    return Array(all[range])
  }

  /// Call it before the decoder waits for another image. Erases the used memory, and lets the kernel end the process
  /// if it keeps computing for a second or two.
  func becomeIdle() {
    memset(decoder.memory, 0, given)
    memset(decoder.memory + SharedMemory.halfSize, 0, taken)
    (given, taken) = (0, 0)
    CIsolation_allow_seconds(decoder.process, 1)
  }

  /// The time since the last request was sent.
  var sinceAsked: Duration { ContinuousClock.now - asked }
}

/// How an image loses its decoder.
enum DecoderLoss: Error {
  /// The process exited or was killed.
  case died
  /// It reported that a signal is about to end it.
  case crashed(Int32)
  /// Communication failed, with an `errno` of this process. The decoder may still exist.
  case cutOff(Int32)
  /// It has computed for too long without a reply.
  case timedOut
  /// It did not reply for too long, and neither computed nor waited for a core.
  case hung
  /// Its message violates the protocol.
  case protocolViolation(String)
}
