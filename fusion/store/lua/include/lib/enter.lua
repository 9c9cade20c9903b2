-- The first process of a fleet writes down which layout the data have, if nobody has.
-- Acts: writes the schema down where there is none
-- INCLUDE: member layout
if not (schema[1] and schema[2] and schema[3]) then begin_layout(A_name, is_new()) end
