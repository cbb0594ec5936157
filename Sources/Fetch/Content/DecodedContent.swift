internal import Jobs
internal import Synchronization

/// Decodes one content coding, on the thread of the caller that reads the bytes.
///
/// Bytes are decoded only when requested. A small body that expands a lot is therefore never decoded further
/// than needed, nor held in memory as a whole. Bytes after the coding's end are ignored, as in browsers.
final class DecodedContent: ImageBytes {
  private enum Phase {
    case decoding
    /// The coding has ended, but another member may follow.
    case atEnd
    case over
  }

  private struct State {
    let decoder: any CodingDecoder
    var input: [UInt8] = []
    var offset = 0
    var hasInput = false
    /// The last step filled its output buffer, so more output may be available without more input.
    var mayHaveMore = false
    var phase = Phase.decoding
    var produced = 0
  }

  /// The most bytes decoded in one step.
  private static let pieceSize = 65_536

  private let source: any ImageBytes
  private let coding: ContentCoding
  private let maxBytes: Int
  private let state: Mutex<State>

  init(_ source: any ImageBytes, coding: ContentCoding, maxBytes: Int) {
    self.source = source
    self.coding = coding
    self.maxBytes = maxBytes
    state = Mutex(State(decoder: coding.makeDecoder()))
  }

  func next() async throws(FetchError) -> [UInt8]? {
    while true {
      let piece = try state.withLock { state throws(FetchError) -> [UInt8]? in
        try decode(&state)
      }
      if let piece { return piece }
      // Many pieces of input in a row may produce no output, so the loop checks for cancellation.
      if Task.isCancelled { throw .cancelled }
      guard let input = try await source.next() else {
        // An empty input is a body without content, not a broken coding.
        let isWhole = state.withLock { $0.phase != .decoding || !$0.hasInput }
        guard isWhole else { throw .brokenCoding(coding.name) }
        return nil
      }
      state.withLock { state in
        state.input = input
        state.offset = 0
        state.hasInput = true
      }
    }
  }

  /// Returns the next bytes, or nil if more input is needed.
  private func decode(_ state: inout State) throws(FetchError) -> [UInt8]? {
    while state.phase != .over, state.offset < state.input.count || state.mayHaveMore {
      if state.phase == .atEnd {
        guard state.offset < state.input.count else { return nil }
        let goesOn = state.decoder.continues(with: state.input[state.offset])
        state.phase = goesOn ? .decoding : .over
        continue
      }
      let piece = try step(&state)
      if !piece.isEmpty { return piece }
    }
    return nil
  }

  private func step(_ state: inout State) throws(FetchError) -> [UInt8] {
    // One byte more than the limit reveals that the content is too large.
    let left = maxBytes - state.produced
    let room = left < Self.pieceSize ? left + 1 : Self.pieceSize
    var result = Result<CodingStep, BrokenCoding>.failure(BrokenCoding())
    let piece = [UInt8](unsafeUninitializedCapacity: room) { output, count in
      state.input.withUnsafeBufferPointer { input in
        do throws(BrokenCoding) {
          let step = try state.decoder.decode(
            UnsafeBufferPointer(rebasing: input[state.offset...]), into: output)
          count = step.produced
          result = .success(step)
        } catch {
          result = .failure(error)
        }
      }
    }
    guard case .success(let step) = result else { throw .brokenCoding(coding.name) }
    state.offset += step.consumed
    state.produced += step.produced
    state.mayHaveMore = step.produced == room && !step.isEnd
    if step.isEnd { state.phase = .atEnd }
    // The step used no input and made no output, so more input will not help.
    if step.consumed == 0, step.produced == 0, !step.isEnd, state.offset < state.input.count {
      throw .brokenCoding(coding.name)
    }
    guard state.produced <= maxBytes else { throw .tooLarge(limit: maxBytes) }
    // The origin decides how many pieces there are. A mostly empty piece is copied, so that it does not keep
    // 64 KiB allocated.
    guard piece.count < room / 2 else { return piece }
    var small: [UInt8] = []
    small.reserveCapacity(piece.count)
    small += piece
    return small
  }
}
