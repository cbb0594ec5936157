internal import Jobs
internal import Synchronization

/// Content with one coding undone, on the thread of whoever takes it: pieces are made when they are asked for, so that
/// a small body that swells is neither decoded further than it is wanted nor ever held as a whole.
///
/// What follows the coding's end is passed over, as browsers do.
final class DecodedContent: ImageBytes {
  private enum Phase {
    case decoding
    /// The coding says so; it may go on.
    case atEnd
    case over
  }

  private struct State {
    let decoder: any CodingDecoder
    var input: [UInt8] = []
    var offset = 0
    var hasInput = false
    /// The last step filled its room: there may be more without more input.
    var mayHaveMore = false
    var phase = Phase.decoding
    var produced = 0
  }

  /// Of what is decoded at a time.
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
      // An input that yields nothing may be followed by many such.
      if Task.isCancelled { throw .cancelled }
      guard let input = try await source.next() else {
        // Not a byte is no coding either, but the absence of content.
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

  /// The next bytes; nil where more input is needed.
  private func decode(_ state: inout State) throws(FetchError) -> [UInt8]? {
    while state.phase != .over, state.offset < state.input.count || state.mayHaveMore {
      if state.phase == .atEnd {
        guard state.offset < state.input.count else { return nil }
        let goesOn = state.decoder.goesOn(with: state.input[state.offset])
        state.phase = goesOn ? .decoding : .over
        continue
      }
      let piece = try step(&state)
      if !piece.isEmpty { return piece }
    }
    return nil
  }

  private func step(_ state: inout State) throws(FetchError) -> [UInt8] {
    // One more than is allowed tells that there are too many.
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
    // Neither input nor output moved: no input will change that.
    if step.consumed == 0, step.produced == 0, !step.isEnd, state.offset < state.input.count {
      throw .brokenCoding(coding.name)
    }
    guard state.produced <= maxBytes else { throw .tooLarge(limit: maxBytes) }
    // A stranger says how many pieces there are, and whoever holds one holds its room.
    guard piece.count < room / 2 else { return piece }
    var small: [UInt8] = []
    small.reserveCapacity(piece.count)
    small += piece
    return small
  }
}
