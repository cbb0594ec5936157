/// A sorted set stored in chunks. A change copies one chunk, even while copies of the set exist.
package struct SortedElements<Element: Comparable & Sendable>: Sendable {
  /// No chunk is empty, and the chunks are in ascending order.
  private var chunks: [[Element]] = []
  private static var most: Int { 64 }

  package init() {}

  package var isEmpty: Bool { chunks.isEmpty }
  package var last: Element? { chunks.last?.last }

  /// The elements in ascending order.
  var ascending: some Sequence<Element> { chunks.lazy.joined() }
  /// The elements in descending order.
  var descending: some Sequence<Element> { chunks.reversed().lazy.map { $0.reversed() }.joined() }

  /// Inserts an element that the set does not contain.
  package mutating func insert(_ element: Element) {
    guard !chunks.isEmpty else { return chunks = [[element]] }
    let chunk = min(self.chunk(of: element), chunks.count - 1)
    chunks[chunk].insert(element, at: Self.index(of: element, in: chunks[chunk]))
    guard chunks[chunk].count > Self.most else { return }
    let rest = Array(chunks[chunk].suffix(Self.most / 2))
    chunks[chunk].removeLast(rest.count)
    chunks.insert(rest, at: chunk + 1)
  }

  /// Removes an element, if the set contains it.
  package mutating func remove(_ element: Element) {
    let chunk = self.chunk(of: element)
    guard chunk < chunks.count else { return }
    let index = Self.index(of: element, in: chunks[chunk])
    guard index < chunks[chunk].count, chunks[chunk][index] == element else { return }
    chunks[chunk].remove(at: index)
    if chunks[chunk].isEmpty { chunks.remove(at: chunk) }
  }

  /// The index of the first chunk that may contain the element; the number of chunks if there is
  /// none.
  private func chunk(of element: Element) -> Int {
    Self.first(in: 0..<chunks.count) { chunks[$0][chunks[$0].count - 1] >= element }
  }

  private static func index(of element: Element, in chunk: [Element]) -> Int {
    first(in: 0..<chunk.count) { chunk[$0] >= element }
  }

  /// Binary search: the first index that meets the condition, or the end of the range.
  private static func first(in range: Range<Int>, where condition: (Int) -> Bool) -> Int {
    var (low, high) = (range.lowerBound, range.upperBound)
    while low < high {
      let middle = (low + high) / 2
      if condition(middle) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}
